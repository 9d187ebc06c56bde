/* Thirty-two registers of sixteen floats: twenty-eight sums, two columns, one broadcast. */
#if defined(__x86_64__)
#define VECTOR 16
#define TILE_ROWS 14
#define TILE_VECTORS 2
#define KERNEL_NAME lvn_kernels_avx512
#define KERNEL_TEXT "avx512"
#include "engine/kernels_body.h"
#endif
