#define VECTOR 4
#define TILE_ROWS 4
#define TILE_VECTORS 2
#define KERNEL_NAME lvn_kernels_generic
#define KERNEL_TEXT "generic"
#include "engine/kernels_body.h"
