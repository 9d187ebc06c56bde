/* The trainer against finite differences, against itself, and through its files, on small random models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "engine/trainer.h"
#include "tiny_model.inc"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/levin-train-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static lvn_trainer *open_tiny(bool is_qwen2, int threads)
{
    tiny_model_write(path_of("model.gguf"), is_qwen2, 7);
    lvn_trainer_config config = {.model_path = path_of("model.gguf"), .rank = 4, .alpha = 8, .threads = threads, .seed = 3,
                                 .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    lvn_trainer *t;
    lvn_err err = {0};
    if (lvn_trainer_open(&config, &t, &err))
        fail_msg("%s", err.message);
    /* B starts as zeros, where many gradients vanish: test away from there. */
    lvn_rng rng = {11};
    for (size_t i = 0; i < t->lora->count; i++)
        t->lora->values[i] = 0.3f * (float)(2 * lvn_rng_unit(&rng) - 1);
    lvn_decoder_touch(t->decoder);
    return t;
}

/* A group with context tokens inside, branches of several lengths, and more rows than a chunk of attention. */
typedef struct sample {
    int32_t prompt[70];
    int32_t tokens[3][60];
    uint8_t mask[3][60];
    float old[3][60], weight[3][60];
    lvn_branch branches[3];
    lvn_group group;
} sample;

static void fill_sample(sample *s, size_t prompt, const size_t counts[3], unsigned seed)
{
    lvn_rng rng = {seed};
    for (size_t i = 0; i < prompt; i++)
        s->prompt[i] = (int32_t)lvn_rng_below(&rng, VOCAB);
    for (int b = 0; b < 3; b++) {
        for (size_t i = 0; i < counts[b]; i++) {
            s->tokens[b][i] = (int32_t)lvn_rng_below(&rng, VOCAB);
            s->mask[b][i] = i % 4 != 2;
            s->old[b][i] = -3.6f + 0.8f * (float)lvn_rng_unit(&rng);
            s->weight[b][i] = (float)(2 * lvn_rng_unit(&rng) - 1);
        }
        s->branches[b] = (lvn_branch){s->tokens[b], counts[b], s->mask[b], s->old[b], s->weight[b]};
    }
    s->group = (lvn_group){s->prompt, prompt, s->branches, 3};
}

static double loss_of(lvn_trainer *t, const lvn_group *group, const lvn_loss *loss, lvn_train_stats *stats)
{
    lvn_train_stats own = {0};
    lvn_err err = {0};
    lvn_decoder_touch(t->decoder);
    if (lvn_trainer_accumulate(t, group, loss, &own, &err))
        fail_msg("%s", err.message);
    if (stats)
        *stats = own;
    return own.loss;
}

/* The gradient along a random direction against a central difference, for each linear matrix's A and B alone. F32 arithmetic: the
 * difference itself is good to about 1 % of the larger ones. */
static void check_gradient(lvn_trainer *t, const lvn_group *group, const lvn_loss *loss)
{
    lvn_lora *lora = t->lora;
    lvn_trainer_zero_grad(t);
    loss_of(t, group, loss, NULL);
    float *gradient = malloc(lora->count * sizeof(float)), *saved = malloc(lora->count * sizeof(float));
    memcpy(gradient, lora->gradients, lora->count * sizeof(float));
    memcpy(saved, lora->values, lora->count * sizeof(float));
    double whole = sqrt(t->kernels->square_sum(gradient, lora->count));
    assert_true(whole > 0);
    for (int i = 0; i < lora->layers * LVN_LINEARS * 2; i++) {
        const lvn_pair *p = &lora->pairs[i / 2];
        size_t from = i % 2 ? p->b : p->a, count = (size_t)lora->rank * (size_t)(i % 2 ? p->out : p->in);
        double norm = sqrt(t->kernels->square_sum(gradient + from, count));
        if (norm < 1e-6 * whole)
            continue;
        double step = 2e-3;
        double losses[2];
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < count; k++)
                lora->values[from + k] = saved[from + k] + (float)((side ? -step : step) / norm * (double)gradient[from + k]);
            losses[side] = loss_of(t, group, loss, NULL);
        }
        memcpy(lora->values, saved, lora->count * sizeof(float));
        double measured = (losses[0] - losses[1]) / (2 * step);
        if (fabs(measured - norm) > 0.02 * norm + 2e-3 * whole)
            fail_msg("%s %s of layer %d: gradient %g, difference %g", lvn_linear_gguf_name((lvn_linear)(i / 2 % LVN_LINEARS)),
                     i % 2 ? "B" : "A", i / 2 / LVN_LINEARS, norm, measured);
    }
    lvn_decoder_touch(t->decoder);
    lvn_trainer_zero_grad(t);
    free(gradient);
    free(saved);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    static const lvn_loss losses[] = {
        {.kind = LVN_LOSS_NLL, .temperature = 1},
        {.kind = LVN_LOSS_POLICY, .temperature = 0.7f, .clip_low = 0.2f, .clip_high = 0.2f},
        {.kind = LVN_LOSS_POLICY, .temperature = 1, .clip_low = 0.3f, .clip_high = 0.1f, .dual_clip = 1.5f},
        {.kind = LVN_LOSS_POLICY, .temperature = 1.3f, .clip_low = 0.2f, .clip_high = 0.2f, .kl_coef = 0.5f, .kl_scale = 0.2f},
    };
    for (int qwen2 = 0; qwen2 < 2; qwen2++) {
        lvn_trainer *t = open_tiny(qwen2, 2);
        sample s;
        fill_sample(&s, 9, (const size_t[]){6, 11, 3}, 5);
        for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++)
            check_gradient(t, &s.group, &losses[i]);
        fill_sample(&s, 61, (const size_t[]){57, 50, 8}, 6);
        check_gradient(t, &s.group, &losses[0]);
        lvn_trainer_close(t);
    }
}

static void a_packed_group_equals_its_branches_one_by_one(void **state)
{
    (void)state;
    lvn_trainer *t = open_tiny(false, 2);
    sample s;
    fill_sample(&s, 53, (const size_t[]){20, 60, 33}, 8);
    const lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    lvn_trainer_zero_grad(t);
    double together = loss_of(t, &s.group, &loss, NULL);
    float *gradient = malloc(t->lora->count * sizeof(float));
    memcpy(gradient, t->lora->gradients, t->lora->count * sizeof(float));
    lvn_trainer_zero_grad(t);
    double apart = 0;
    for (int b = 0; b < 3; b++) {
        lvn_group one = {s.group.prompt, s.group.prompt_count, &s.branches[b], 1};
        apart += loss_of(t, &one, &loss, NULL);
    }
    assert_true(fabs(together - apart) < 1e-4 * fabs(apart));
    double worst = 0, most = 0;
    for (size_t i = 0; i < t->lora->count; i++) {
        worst = fmax(worst, fabs((double)gradient[i] - (double)t->lora->gradients[i]));
        most = fmax(most, fabs((double)gradient[i]));
    }
    assert_true(worst < 1e-4 * most);
    free(gradient);
    lvn_trainer_close(t);
}

static void every_kind_of_kernel_computes_the_same(void **state)
{
    (void)state;
    double losses[3];
    static const char *const kinds[] = {"generic", "avx2", "avx512"};
    sample s;
    fill_sample(&s, 17, (const size_t[]){20, 9, 13}, 4);
    const lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    for (int i = 0; i < 3; i++) {
        setenv("LEVIN_KERNEL", kinds[i], 1);
        lvn_trainer *t = open_tiny(false, 1);
        if (strcmp(lvn_trainer_kernel(t), kinds[i]))
            printf("no %s on this CPU\n", kinds[i]);
        losses[i] = loss_of(t, &s.group, &loss, NULL);
        lvn_trainer_close(t);
    }
    unsetenv("LEVIN_KERNEL");
    assert_true(fabs(losses[1] - losses[0]) < 1e-5 * fabs(losses[0]));
    assert_true(fabs(losses[2] - losses[0]) < 1e-5 * fabs(losses[0]));
}

static void the_ratio_is_clipped_as_the_formula_says(void **state)
{
    (void)state;
    lvn_trainer *t = open_tiny(false, 1);
    int32_t prompt[] = {1, 2}, token = 3;
    uint8_t mask = 1;
    float logp, *rows[] = {&logp};
    lvn_branch branch = {&token, 1, &mask, NULL, NULL};
    lvn_group group = {prompt, 2, &branch, 1};
    assert_int_equal(lvn_trainer_logprobs(t, &group, 1, rows, NULL), LVN_OK);
    /* ratio, weight, dual clip -> loss and whether a gradient flows */
    static const struct { double ratio; float weight, dual; double loss; bool flows; } cases[] = {
        {1.0, 1, 0, -1.0, true},   {1.5, 1, 0, -1.2, false}, {0.5, 1, 0, -0.5, true},  {1.5, -1, 0, 1.5, true},
        {0.5, -1, 0, 0.8, false},  {5.0, -1, 3, 3.0, false}, {2.0, -1, 3, 2.0, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        float old = logp - (float)log(cases[i].ratio);
        branch.old_logp = &old;
        branch.weight = &cases[i].weight;
        lvn_loss loss = {.kind = LVN_LOSS_POLICY, .temperature = 1, .clip_low = 0.2f, .clip_high = 0.2f, .dual_clip = cases[i].dual};
        lvn_train_stats stats;
        lvn_trainer_zero_grad(t);
        double value = loss_of(t, &group, &loss, &stats);
        if (fabs(value - cases[i].loss) > 1e-4)
            fail_msg("case %zu: loss %g, expected %g", i, value, cases[i].loss);
        assert_int_equal(t->kernels->square_sum(t->lora->gradients, t->lora->count) > 0, cases[i].flows);
        assert_int_equal(stats.clipped_tokens, !cases[i].flows);
    }
    lvn_trainer_close(t);
}

static void fine_tuning_learns_four_rows_by_heart(void **state)
{
    (void)state;
    lvn_trainer *t = open_tiny(false, 2);
    int32_t prompt[4][3], answers[4][4];
    uint8_t mask[4] = {1, 1, 1, 1};
    lvn_rng rng = {2};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 3; k++)
            prompt[i][k] = (int32_t)lvn_rng_below(&rng, VOCAB);
        for (int k = 0; k < 4; k++)
            answers[i][k] = (int32_t)lvn_rng_below(&rng, VOCAB);
    }
    const lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    double first = 0, last = 0;
    for (int step = 0; step < 150; step++) {
        last = 0;
        for (int i = 0; i < 4; i++) {
            lvn_branch branch = {answers[i], 4, mask, NULL, NULL};
            lvn_group group = {prompt[i], 3, &branch, 1};
            lvn_train_stats stats = {0};
            assert_int_equal(lvn_trainer_accumulate(t, &group, &loss, &stats, NULL), LVN_OK);
            last += stats.loss / 16;
        }
        first = step ? first : last;
        assert_int_equal(lvn_trainer_step(t, 0.01f, NULL, NULL), LVN_OK);
    }
    assert_true(first > 2);
    assert_true(last < 0.05);
    lvn_trainer_close(t);
}

static void a_saved_state_goes_on_exactly_as_if_never_stopped(void **state)
{
    (void)state;
    sample s;
    fill_sample(&s, 12, (const size_t[]){8, 5, 9}, 3);
    const lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    lvn_trainer *a = open_tiny(false, 1);
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            assert_int_equal(lvn_trainer_save_state(a, path_of("state"), NULL), LVN_OK);
        loss_of(a, &s.group, &loss, NULL);
        assert_int_equal(lvn_trainer_step(a, 0.01f, NULL, NULL), LVN_OK);
    }
    lvn_trainer *b = open_tiny(false, 1);
    assert_int_equal(lvn_trainer_load_state(b, path_of("state"), NULL), LVN_OK);
    assert_int_equal(lvn_trainer_step_count(b), 3);
    for (int i = 0; i < 3; i++) {
        loss_of(b, &s.group, &loss, NULL);
        assert_int_equal(lvn_trainer_step(b, 0.01f, NULL, NULL), LVN_OK);
    }
    assert_memory_equal(a->lora->values, b->lora->values, a->lora->count * sizeof(float));
    FILE *cut = fopen(path_of("cut"), "w");
    fputs("LVNSTAT1 and then nothing", cut);
    fclose(cut);
    assert_int_equal(lvn_trainer_load_state(b, path_of("cut"), NULL), LVN_INVALID);
    assert_int_equal(lvn_trainer_load_state(b, path_of("none"), NULL), LVN_NOT_FOUND);
    lvn_trainer_close(a);
    lvn_trainer_close(b);
}

static void an_adapter_file_holds_the_weights(void **state)
{
    (void)state;
    lvn_trainer *a = open_tiny(false, 1), *b = open_tiny(false, 1);
    lvn_err err = {0};
    assert_int_equal(lvn_trainer_save_gguf(a, path_of("adapter.gguf"), &err), LVN_OK);
    memset(b->lora->values, 0, b->lora->count * sizeof(float));
    assert_int_equal(lvn_trainer_load_gguf(b, path_of("adapter.gguf"), &err), LVN_OK);
    assert_memory_equal(a->lora->values, b->lora->values, a->lora->count * sizeof(float));
    assert_int_equal(lvn_trainer_load_gguf(b, path_of("model.gguf"), &err), LVN_INVALID);
    assert_int_equal(lvn_trainer_save_peft(a, path_of("peft"), "tiny", &err), LVN_OK);
    lvn_trainer_close(a);
    lvn_trainer_close(b);
}

static void wrong_input_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    lvn_trainer *t = open_tiny(false, 1);
    int32_t prompt[] = {1, 2}, bad = VOCAB, far[300] = {0};
    uint8_t mask[300] = {0};
    lvn_branch branch = {&bad, 1, mask, NULL, NULL};
    lvn_group group = {prompt, 2, &branch, 1};
    const lvn_loss loss = {.kind = LVN_LOSS_NLL, .temperature = 1};
    lvn_err err = {0};
    assert_int_equal(lvn_trainer_accumulate(t, &group, &loss, NULL, &err), LVN_INVALID);
    branch = (lvn_branch){far, 300, mask, NULL, NULL};
    assert_int_equal(lvn_trainer_accumulate(t, &group, &loss, NULL, &err), LVN_TOO_LARGE);
    group.prompt_count = 0;
    assert_int_equal(lvn_trainer_accumulate(t, &group, &loss, NULL, &err), LVN_INVALID);
    t->lora->gradients[0] = NAN;
    assert_int_equal(lvn_trainer_step(t, 0.1f, NULL, &err), LVN_INVALID);
    assert_int_equal(lvn_trainer_step_count(t), 0);
    lvn_trainer_close(t);
    lvn_trainer_config config = {.model_path = path_of("nothing"), .rank = 4, .alpha = 8, .threads = 1};
    assert_int_equal(lvn_trainer_open(&config, &t, &err), LVN_NOT_FOUND);
    FILE *file = fopen(path_of("text"), "w");
    fputs("just some text", file);
    fclose(file);
    config.model_path = path_of("text");
    assert_int_equal(lvn_trainer_open(&config, &t, &err), LVN_INVALID);
    config.model_path = path_of("model.gguf");
    assert_int_equal(truncate(config.model_path, 20000), 0);
    assert_int_equal(lvn_trainer_open(&config, &t, &err), LVN_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gradients_match_finite_differences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_packed_group_equals_its_branches_one_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_kind_of_kernel_computes_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_ratio_is_clipped_as_the_formula_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fine_tuning_learns_four_rows_by_heart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_saved_state_goes_on_exactly_as_if_never_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_adapter_file_holds_the_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_input_is_refused_and_changes_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
