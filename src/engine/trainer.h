/* Private to the engine: what a trainer is made of, for train.c and the files that save and load it. */
#ifndef LVN_ENGINE_TRAINER_H
#define LVN_ENGINE_TRAINER_H

#include "engine/decoder.h"

struct lvn_trainer {
    lvn_trainer_config config;
    lvn_weights *weights;
    lvn_pool *pool;
    const lvn_kernels *kernels;
    lvn_lora *lora;
    lvn_decoder *decoder;
    int64_t steps;
};

#endif
