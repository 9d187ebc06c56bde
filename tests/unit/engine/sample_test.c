/* What is drawn, how often, and what is said of it, against the definitions worked out plainly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sample.h"

enum { VOCAB = 3001, DRAWS = 8000 };

static float logits[VOCAB];
static lvn_sampler sampler;
static struct lvn_token_alt alternatives[20];

static int set_up(void **state)
{
    (void)state;
    lvn_sampler_init(&sampler, VOCAB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lvn_sampler_done(&sampler);
    return 0;
}

/* A few likely tokens on a floor of unlikely ones. */
static void make_peaked(void)
{
    lvn_rng rng = {7};
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)lvn_rng_unit(&rng) - 4;
    for (int i = 0; i < 12; i++)
        logits[i * 211 + 5] = 6.0f - 0.5f * (float)i;
}

static void make_flat(void)
{
    for (int i = 0; i < VOCAB; i++) /* 1009 and VOCAB have no common divisor: all differ */
        logits[i] = 0.5f * (float)(i * 1009 % VOCAB) / VOCAB;
}

static double *probabilities(double temperature)
{
    static double p[VOCAB];
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += p[i] = exp((double)logits[i] / temperature);
    for (int i = 0; i < VOCAB; i++)
        p[i] /= sum;
    return p;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The least probability that top-k and top-p let through. */
static double least_allowed(const double *p, int top_k, double top_p)
{
    static double sorted[VOCAB];
    memcpy(sorted, p, sizeof(sorted));
    qsort(sorted, VOCAB, sizeof(*sorted), by_size);
    int keep = top_k > 0 ? top_k : VOCAB, n = 0;
    for (double mass = 0; n < keep && n < VOCAB && (n == 0 || mass < top_p); n++)
        mass += sorted[n];
    return sorted[n - 1];
}

/* Draws many times; counts[i] of token i. Checks each log-prob. */
static void draw(lvn_sampling sampling, int *counts)
{
    lvn_rng rng = {11};
    const double *p = probabilities((double)sampling.temperature);
    memset(counts, 0, VOCAB * sizeof(*counts));
    for (int i = 0; i < DRAWS; i++) {
        lvn_token_info info;
        lvn_sample(&sampler, logits, &sampling, &rng, alternatives, &info);
        assert_in_range(info.id, 0, VOCAB - 1);
        assert_true(fabs((double)info.logp - log(p[info.id])) < 1e-4);
        counts[info.id]++;
    }
}

static void frequencies_follow_the_probabilities(void **state)
{
    (void)state;
    static int counts[VOCAB];
    for (int hot = 0; hot < 2; hot++) {
        make_peaked();
        lvn_sampling s = {.temperature = hot ? 1.5f : 0.7f, .top_p = 1};
        draw(s, counts);
        const double *p = probabilities((double)s.temperature);
        double tail = 0, tail_p = 0;
        for (int i = 0; i < VOCAB; i++) {
            double expected = p[i] * DRAWS;
            if (expected > 50) {
                assert_true(fabs(counts[i] - expected) < 5 * sqrt(expected));
            } else {
                tail += counts[i];
                tail_p += expected;
            }
        }
        assert_true(fabs(tail - tail_p) < 5 * sqrt(tail_p) + 5);
    }
}

static void top_k_and_top_p_keep_what_they_should(void **state)
{
    (void)state;
    static int counts[VOCAB];
    static const struct {
        int top_k;
        float top_p;
    } cases[] = {{1, 1}, {5, 1}, {0, 0.5f}, {0, 0.9f}, {3, 0.9f}, {0, 1e-6f}, {2000, 0.95f}};
    for (int flat = 0; flat < 2; flat++)
        for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
            flat ? make_flat() : make_peaked();
            lvn_sampling s = {.temperature = 1, .top_p = cases[c].top_p, .top_k = cases[c].top_k};
            draw(s, counts);
            const double *p = probabilities(1);
            double least = least_allowed(p, s.top_k, (double)s.top_p), kept = 0;
            for (int i = 0; i < VOCAB; i++) {
                if (counts[i])
                    assert_true(p[i] >= least * (1 - 1e-4));
                kept += p[i] >= least ? p[i] : 0;
            }
            for (int i = 0; i < VOCAB; i++) {
                double expected = p[i] / kept * DRAWS;
                if (p[i] >= least && expected > 50)
                    assert_true(fabs(counts[i] - expected) < 5 * sqrt(expected));
            }
        }
}

static void greedy_takes_the_first_of_the_largest(void **state)
{
    (void)state;
    lvn_sampling s = {.temperature = 0, .top_p = 1};
    lvn_token_info info;
    lvn_rng rng = {1};
    for (int at = 0; at < VOCAB; at += at < 40 ? 1 : 97) {
        make_peaked();
        logits[at] = 20;
        logits[VOCAB - 1] = 20;
        lvn_sample(&sampler, logits, &s, &rng, alternatives, &info);
        assert_int_equal(info.id, at);
        assert_true(fabs((double)info.logp - log(probabilities(1)[at])) < 1e-4);
    }
    assert_int_equal(rng.state, 1);
}

static void the_best_alternatives_come_first(void **state)
{
    (void)state;
    make_peaked();
    lvn_sampling s = {.temperature = 2, .top_p = 1, .top_logprobs = 20};
    lvn_token_info info;
    lvn_rng rng = {1};
    lvn_sample(&sampler, logits, &s, &rng, alternatives, &info);
    const double *p = probabilities(2);
    assert_ptr_equal(info.top, alternatives);
    for (int i = 0; i < 20; i++) {
        assert_true(fabs((double)alternatives[i].logp - log(p[alternatives[i].id])) < 1e-4);
        if (i < 12)
            assert_int_equal(alternatives[i].id, i * 211 + 5);
        if (i)
            assert_true(alternatives[i].logp <= alternatives[i - 1].logp);
    }
}

static void masked_tokens_are_never_drawn(void **state)
{
    (void)state;
    static int counts[VOCAB];
    make_flat();
    for (int i = 0; i < VOCAB; i += 2)
        logits[i] = -INFINITY;
    lvn_sampling s = {.temperature = 1, .top_p = 1};
    draw(s, counts);
    for (int i = 0; i < VOCAB; i += 2)
        assert_int_equal(counts[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_probabilities),
        cmocka_unit_test(top_k_and_top_p_keep_what_they_should),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(the_best_alternatives_come_first),
        cmocka_unit_test(masked_tokens_are_never_drawn),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
