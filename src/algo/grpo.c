/* Group relative policy optimisation (Shao et al. 2024): several rollouts a task, each judged against its group. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "algo/advantage.h"
#include "algo/algo.h"
#include "algo/rollouts.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"

/* Most tokens of one packed sequence; a group that is longer is trained in pieces, its prompt computed again. */
enum { MAX_PACKED_TOKENS = 1536 };

typedef struct step_sums {
    double reward, advantage_abs, answer_tokens;
    size_t rollouts, failed, unrewarded, groups, groups_with_signal, trajectories, cut, stale, mismatches, skipped_calls;
    size_t trained_tokens; /* of groups with signal */
} step_sums;

/* One rollout's sequence, ready to be packed. */
typedef struct row {
    const lvn_trajectory *trajectory;
    double advantage;
    float scale; /* weight of each trained token before the advantage */
} row;

/* The tasks of a step: a walk through seeded permutations of the set, so that every task comes once an epoch. */
static void choose_tasks(const lvn_dataset *tasks, uint64_t seed, int64_t step, size_t want, const lvn_task **out)
{
    lvn_arena *arena = lvn_arena_new(0);
    size_t *order = lvn_arena_array(arena, tasks->count, sizeof(*order));
    uint64_t shuffled_for = UINT64_MAX;
    for (size_t k = 0; k < want; k++) {
        uint64_t position = (uint64_t)step * want + k;
        uint64_t epoch = position / tasks->count;
        if (epoch != shuffled_for) {
            lvn_rng rng = {(seed + 1) * UINT64_C(0xd1342543de82ef95) + epoch};
            lvn_rng_permutation(&rng, order, tasks->count);
            shuffled_for = epoch;
        }
        out[k] = &tasks->tasks[order[position % tasks->count]];
    }
    lvn_arena_free(arena);
}

/* Advantages of one group; its rows with signal are appended to `rows`. */
static size_t judge_group(lvn_algo *algo, const lvn_outcome *outcomes, size_t count, row *rows, step_sums *sums)
{
    double rewards[256] = {0}, advantages[256]; /* grpo.samples is at most 256 */
    for (size_t i = 0; i < count; i++) {
        const lvn_outcome *o = &outcomes[i];
        rewards[i] = o->reward;
        sums->reward += o->reward;
        sums->rollouts++;
        sums->failed += !o->has_succeeded;
        sums->unrewarded += !o->has_reward;
        sums->mismatches += o->trajectories.mismatch_count;
        sums->skipped_calls += o->trajectories.skipped_calls;
        sums->trajectories += o->trajectories.count;
        for (size_t t = 0; t < o->trajectories.count; t++) {
            sums->cut += o->trajectories.items[t].was_cut;
            sums->stale += o->trajectories.items[t].policy_version != algo->version;
            sums->answer_tokens += (double)o->trajectories.items[t].trained_count;
        }
    }
    sums->groups++;
    if (!lvn_advantage_grpo(rewards, count, algo->options->grpo.normalize_std, advantages))
        return 0;
    sums->groups_with_signal++;
    size_t made = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < outcomes[i].trajectories.count; t++) {
            const lvn_trajectory *trajectory = &outcomes[i].trajectories.items[t];
            rows[made++] = (row){.trajectory = trajectory, .advantage = advantages[i]};
            sums->trained_tokens += trajectory->trained_count;
            sums->advantage_abs += fabs(advantages[i]);
        }
    return made;
}

static bool has_same_prompt(const lvn_trajectory *a, const lvn_trajectory *b)
{
    return a->prompt_count == b->prompt_count && memcmp(a->prompt, b->prompt, a->prompt_count * sizeof(*a->prompt)) == 0;
}

static lvn_branch make_branch(lvn_arena *arena, const row *r)
{
    const lvn_trajectory *t = r->trajectory;
    float *weight = lvn_arena_array(arena, t->count, sizeof(*weight));
    for (size_t i = 0; i < t->count; i++)
        weight[i] = t->mask[i] ? r->scale * (float)r->advantage : 0.0f;
    return (lvn_branch){.tokens = t->tokens, .count = t->count, .mask = t->mask, .old_logp = t->logp, .weight = weight};
}

/* Rows of one task with the same prompt share it; at most MAX_PACKED_TOKENS a piece. */
static lvn_code accumulate_rows(lvn_algo *algo, lvn_arena *arena, const row *rows, size_t count, const lvn_loss *loss,
                                lvn_train_stats *stats, lvn_err *err)
{
    bool *is_done = lvn_arena_array(arena, count, sizeof(bool));
    lvn_branch *branches = lvn_arena_array(arena, count, sizeof(*branches));
    for (size_t first = 0; first < count; first++) {
        if (is_done[first])
            continue;
        const lvn_trajectory *head = rows[first].trajectory;
        size_t packed = head->prompt_count, branch_count = 0;
        for (size_t i = first; i < count; i++) {
            const lvn_trajectory *t = rows[i].trajectory;
            bool fits = branch_count == 0 || packed + t->count <= MAX_PACKED_TOKENS;
            if (is_done[i] || !fits || !has_same_prompt(head, t))
                continue;
            branches[branch_count++] = make_branch(arena, &rows[i]);
            packed += t->count;
            is_done[i] = true;
        }
        lvn_group group = {head->prompt, head->prompt_count, branches, branch_count};
        lvn_code code = lvn_trainer_accumulate(algo->trainer, &group, loss, stats, err);
        if (code)
            return code;
    }
    return LVN_OK;
}

static void set_scales(const lvn_train_options *o, row *rows, size_t count, size_t trained_tokens)
{
    bool by_rollout = !strcmp(o->grpo.loss_scale, "rollout");
    for (size_t i = 0; i < count; i++)
        rows[i].scale = by_rollout ? 1.0f / ((float)rows[i].trajectory->trained_count * (float)count)
                                   : 1.0f / (float)trained_tokens;
}

static float rate_at(const lvn_train_options *o, int64_t step)
{
    double gone = o->grpo.steps > 1 ? (double)step / (double)(o->grpo.steps - 1) : 0;
    return (float)(o->grpo.learning_rate * (1 - (1 - o->grpo.final_ratio) * gone));
}

/* Rows of a task lie together in `rows`: ends[g] is the end of group g. */
static lvn_code update(lvn_algo *algo, lvn_arena *arena, row *rows, const size_t *ends, size_t group_count, size_t trained_tokens,
                       int64_t step, lvn_train_stats *stats, double *out_norm, lvn_err *err)
{
    const lvn_train_options *o = algo->options;
    lvn_loss loss = {.kind = LVN_LOSS_POLICY, .temperature = (float)o->grpo.temperature, .clip_low = (float)o->grpo.clip_low,
                     .clip_high = (float)o->grpo.clip_high, .dual_clip = (float)o->grpo.dual_clip,
                     .kl_coef = (float)o->grpo.kl, .kl_scale = 1.0f / (float)trained_tokens};
    set_scales(o, rows, ends[group_count - 1], trained_tokens);
    for (int64_t u = 0; u < o->grpo.updates; u++) {
        size_t from = 0;
        for (size_t g = 0; g < group_count; from = ends[g++]) {
            lvn_code code = accumulate_rows(algo, arena, rows + from, ends[g] - from, &loss, stats, err);
            if (code) {
                lvn_trainer_zero_grad(algo->trainer);
                return code;
            }
        }
        lvn_code code = lvn_trainer_step(algo->trainer, rate_at(o, step), out_norm, err);
        if (code)
            return code;
    }
    return LVN_OK;
}

static void write_number(lvn_buf *b, const char *key, double value)
{
    lvn_json_write_key(b, key);
    lvn_json_write_double(b, value);
}

static void write_count(lvn_buf *b, const char *key, size_t value)
{
    lvn_json_write_key(b, key);
    lvn_json_write_int(b, (int64_t)value);
}

static void report(lvn_algo *algo, int64_t step, const step_sums *s, const lvn_train_stats *t, double norm, double sample_s,
                   double train_s)
{
    double per_token = t->masked_tokens ? 1.0 / (double)t->masked_tokens : 0;
    double reward = s->reward / (double)s->rollouts;
    lvn_buf *b = lvn_metrics_begin(algo->metrics, "grpo");
    write_count(b, "step", (size_t)step + 1);
    write_number(b, "reward", reward);
    write_count(b, "rollouts", s->rollouts);
    write_count(b, "failed", s->failed);
    write_count(b, "unrewarded", s->unrewarded);
    write_count(b, "groups", s->groups);
    write_count(b, "groups_with_signal", s->groups_with_signal);
    write_count(b, "trajectories", s->trajectories);
    write_count(b, "merge_mismatches", s->mismatches);
    write_count(b, "calls_without_tokens", s->skipped_calls);
    write_count(b, "cut_by_length", s->cut);
    write_count(b, "stale_trajectories", s->stale);
    write_count(b, "trained_tokens", t->masked_tokens);
    write_number(b, "answer_tokens", s->answer_tokens / (double)s->rollouts);
    write_number(b, "loss", t->loss);
    write_number(b, "entropy", t->entropy_sum * per_token);
    write_number(b, "kl_old", t->kl_old_sum * per_token);
    write_number(b, "kl_base", t->kl_base_sum * per_token);
    write_number(b, "ratio", t->ratio_sum * per_token);
    write_number(b, "clipped", (double)t->clipped_tokens * per_token);
    write_number(b, "max_abs_dlogp", t->max_abs_dlogp);
    write_number(b, "grad_norm", norm);
    write_number(b, "sample_seconds", sample_s);
    write_number(b, "train_seconds", train_s);
    lvn_metrics_end(algo->metrics);
    lvn_metrics_say(algo->metrics, "step %ld of %ld  reward %.3f  signal %zu of %zu groups  %.0f tokens/s  %.1f s",
                    (long)step + 1, (long)algo->options->grpo.steps, reward, s->groups_with_signal, s->groups,
                    s->answer_tokens / (sample_s > 0 ? sample_s : 1), sample_s + train_s);
}

static lvn_code learn(lvn_algo *algo, lvn_arena *arena, const lvn_outcome *outcomes, size_t task_count, size_t samples,
                      int64_t step, step_sums *sums, lvn_train_stats *stats, double *norm, lvn_err *err)
{
    size_t most = 0;
    for (size_t i = 0; i < task_count * samples; i++)
        most += outcomes[i].trajectories.count;
    row *rows = lvn_arena_array(arena, most, sizeof(*rows));
    size_t *ends = lvn_arena_array(arena, task_count, sizeof(*ends));
    size_t used = 0, groups = 0;
    for (size_t g = 0; g < task_count; g++) {
        size_t made = judge_group(algo, outcomes + g * samples, samples, rows + used, sums);
        if (made) {
            used += made;
            ends[groups++] = used;
        }
    }
    if (!groups || !sums->trained_tokens)
        return LVN_OK; /* nothing to learn from: the policy stays */
    lvn_code code = update(algo, arena, rows, ends, groups, sums->trained_tokens, step, stats, norm, err);
    return code ? code : algo->publish(algo->publish_user, algo->version + 1, err);
}

lvn_code lvn_algo_grpo_step(lvn_algo *algo, const lvn_dataset *tasks, int64_t step, lvn_err *err)
{
    size_t task_count = (size_t)algo->options->grpo.tasks;
    size_t samples = (size_t)algo->options->grpo.samples;
    lvn_arena *arena = lvn_arena_new(1 << 20);
    const lvn_task **chosen = lvn_arena_array(arena, task_count, sizeof(*chosen));
    choose_tasks(tasks, (uint64_t)algo->options->seed, step, task_count, chosen);

    char label[64];
    snprintf(label, sizeof(label), "step %ld of %ld", (long)step + 1, (long)algo->options->grpo.steps);
    int64_t begin = lvn_clock_monotonic_ns();
    lvn_outcome *outcomes = NULL;
    lvn_code code = lvn_rollouts_run(algo, arena, chosen, task_count, samples, LVN_MODE_TRAIN, label, &outcomes, err);
    double sample_s = lvn_ns_to_s(lvn_clock_monotonic_ns() - begin);
    if (!code) {
        lvn_metrics_live(algo->metrics, "%s  training", label);
        step_sums sums = {0};
        lvn_train_stats stats = {0};
        double norm = 0;
        begin = lvn_clock_monotonic_ns();
        code = learn(algo, arena, outcomes, task_count, samples, step, &sums, &stats, &norm, err);
        if (!code)
            report(algo, step, &sums, &stats, norm, sample_s, lvn_ns_to_s(lvn_clock_monotonic_ns() - begin));
    }
    lvn_arena_free(arena);
    return code;
}
