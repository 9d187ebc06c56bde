/* Sixteen registers of eight floats: twelve sums, two columns, one broadcast. */
#if defined(__x86_64__)
#define VECTOR 8
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define KERNEL_NAME lvn_kernels_avx2
#define KERNEL_TEXT "avx2"
#include "engine/kernels_body.h"
#endif
