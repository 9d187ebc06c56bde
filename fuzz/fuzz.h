/* The two functions that libFuzzer looks for. */
#ifndef LVN_FUZZ_FUZZ_H
#define LVN_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
