#include "config/train.h"

#define FIELD(path) offsetof(lvn_train_options, path)
#define TEXT(k, f, choices, fallback, help) {k, LVN_OPTION_TEXT, FIELD(f), 0, 0, choices, fallback, help}
#define PATH(k, f, fallback, help) {k, LVN_OPTION_PATH, FIELD(f), 0, 0, NULL, fallback, help}
#define INT(k, f, lo, hi, fallback, help) {k, LVN_OPTION_INT, FIELD(f), lo, hi, NULL, fallback, help}
#define FLOAT(k, f, lo, hi, fallback, help) {k, LVN_OPTION_FLOAT, FIELD(f), lo, hi, NULL, fallback, help}
#define BOOL(k, f, fallback, help) {k, LVN_OPTION_BOOL, FIELD(f), 0, 0, NULL, fallback, help}

static const lvn_option table[] = {
    TEXT("name", name, NULL, "run", "Names the run's folder and the report."),
    INT("seed", seed, 0, 4294967295.0, "1", "Seeds the adapter's start, the order of tasks and the sampling."),

    TEXT("model.path", model.path, NULL, "auto",
         "A GGUF file; `auto` takes SmolLM2-135M-Instruct where tools/deps put it."),
    PATH("model.cache", model.cache, "", "Where the F16 copy of the weights is kept; empty: a folder below ~/.cache."),
    INT("model.rank", model.rank, 1, 256, "16", "Rank of the LoRA adapters."),
    FLOAT("model.alpha", model.alpha, 0.001, 1024, "32", "The adapter's output is scaled by alpha / rank."),
    INT("model.context_tokens", model.context_tokens, 64, 32768, "1024", "Most tokens of a prompt and its answer."),
    INT("model.threads", model.threads, 0, 256, "0", "Threads for sampling and training; 0: one a core."),
    INT("model.parallel", model.parallel, 1, 32, "32", "Answers sampled at once."),
    BOOL("model.keep_type", model.keep_type, "false",
         "Serve the file's own weight type instead of an F16 copy (faster to start, log-probs differ more)."),
    INT("model.merge_megabytes", model.merge_megabytes, 0, 1048576, "1024",
        "Models up to this size are served with the adapter merged into a copy of the weights (faster); 0: never."),

    TEXT("agent.kind", agent.kind, "warm|command", "warm",
         "`warm` keeps Python interpreters up and calls a function; `command` starts a process a rollout."),
    PATH("agent.file", agent.file, "", "The agent's Python file (warm)."),
    TEXT("agent.function", agent.function, NULL, "solve", "The function in it that takes a task and returns its answer."),
    BOOL("agent.fork", agent.is_forked, "true",
         "Import a warm agent once and fork the workers from there: quicker, and a tenth of the memory."),
    TEXT("agent.python", agent.python, NULL, "auto", "The interpreter; `auto`: the project's environment, else python3."),
    TEXT("agent.command", agent.command, NULL, "", "A shell command line (command)."),
    TEXT("agent.llm_model", agent.llm_model, NULL, "policy", "What the agent finds in LLM_MODEL."),
    INT("agent.workers", agent.workers, 1, 256, "32", "Rollouts run at once."),
    INT("agent.max_attempts", agent.max_attempts, 1, 10, "2", "How often a rollout that failed is tried in all."),
    FLOAT("agent.timeout_seconds", agent.timeout_s, 0.1, 86400, "60", "Longest time of one attempt, in seconds."),
    INT("agent.max_output_bytes", agent.max_output_bytes, 1024, 1073741824, "1048576",
        "Most bytes an attempt may print before it is ended."),
    INT("agent.recycle_after", agent.recycle_after, 0, 1e9, "0", "A warm worker is replaced after so many tasks; 0: never."),

    PATH("data.folder", data.folder, "", "The folder that the other data paths are relative to; --data sets it."),
    TEXT("data.train", data.train, NULL, "train.jsonl", "Tasks to train on."),
    TEXT("data.val", data.val, NULL, "val.jsonl", "Tasks to validate on; the best checkpoint is chosen by these."),
    TEXT("data.val_extra", data.val_extra, NULL, "", "A second validation, only reported."),
    TEXT("data.warm", data.warm, NULL, "", "Tasks of the warm start; empty: the training tasks."),
    TEXT("data.hidden", data.hidden, NULL,
         "gold_sql, gold_result, gold_rows, gold_cols, hardness, kind, query, query_toks, query_toks_no_value, question_toks, sql, "
         "answer, final",
         "Fields of a task that its scorer sees and its agent does not."),
    INT("data.train_limit", data.train_limit, 0, 1e9, "0", "Use only so many training tasks; 0: all."),
    INT("data.val_limit", data.val_limit, 0, 1e9, "0", "Use only so many tasks of each validation; 0: all."),
    INT("data.warm_limit", data.warm_limit, 0, 1e9, "0", "Use only so many tasks of the warm start, drawn by the seed; 0: all."),
    BOOL("data.with_joins", data.with_joins, "false", "Keep tasks marked `\"joins\": true`."),
    BOOL("data.one_table", data.one_table, "false",
         "Of tasks without a `ddl`, keep those whose gold reads one table, and show that table alone."),
    BOOL("data.warm_new_databases", data.warm_new_databases, "false",
         "Leave out of the warm start the databases that training or validation use."),

    TEXT("reward.kind", reward.kind, "sql_exec|command|agent", "sql_exec",
         "`sql_exec`: execution match with the task's gold_sql; `command`: a program; `agent`: what the agent printed."),
    TEXT("reward.command", reward.command, NULL, "", "The scoring program (command)."),
    FLOAT("reward.timeout_seconds", reward.timeout_s, 0.01, 3600, "5", "Longest time of one scoring, in seconds."),
    INT("reward.max_rows", reward.max_rows, 1, 1e9, "100000", "Most rows of a result (sql_exec)."),
    BOOL("reward.keep_distinct", reward.keep_distinct, "false", "DISTINCT counts (sql_exec)."),

    BOOL("sft.on", sft.is_on, "true", "Begin with supervised fine-tuning on the tasks' own answers."),
    TEXT("sft.system", sft.system, NULL, "Answer with one SQLite query and nothing else.", "System turn of the examples."),
    TEXT("sft.user", sft.user, NULL, "{ddl}\n{question}", "User turn; {field} is replaced by that field of the task."),
    TEXT("sft.answer", sft.answer, NULL, "{gold_sql}", "The answer to learn."),
    PATH("sft.start_from", sft.start_from, "", "An adapter (GGUF) to start from instead of a warm start."),
    INT("sft.epochs", sft.epochs, 1, 100, "2", "Passes over the examples."),
    INT("sft.batch", sft.batch, 1, 256, "8", "Examples a step."),
    INT("sft.warmup_steps", sft.warmup_steps, 0, 100000, "5", "Steps over which the learning rate rises."),
    FLOAT("sft.learning_rate", sft.learning_rate, 1e-8, 1, "1e-3", "Peak learning rate of AdamW."),
    FLOAT("sft.final_ratio", sft.final_ratio, 0, 1, "0.1", "The rate falls linearly to this part of its peak."),

    INT("grpo.steps", grpo.steps, 0, 1e6, "40", "Reinforcement steps; 0: none."),
    INT("grpo.tasks", grpo.tasks, 1, 4096, "10", "Tasks a step."),
    INT("grpo.samples", grpo.samples, 2, 256, "8", "Rollouts a task (the group)."),
    INT("grpo.max_tokens", grpo.max_tokens, 1, 32768, "64", "Bound on an answer when the agent sets none."),
    INT("grpo.updates", grpo.updates, 1, 16, "1", "Optimiser updates on one step's rollouts."),
    FLOAT("grpo.learning_rate", grpo.learning_rate, 1e-9, 1, "2e-4", "Learning rate of AdamW."),
    FLOAT("grpo.final_ratio", grpo.final_ratio, 0, 1, "1", "The rate falls linearly to this part of it at the last step."),
    FLOAT("grpo.clip_low", grpo.clip_low, 0, 1, "0.2", "The ratio is clipped at 1 - this."),
    FLOAT("grpo.clip_high", grpo.clip_high, 0, 10, "0.2", "The ratio is clipped at 1 + this."),
    FLOAT("grpo.dual_clip", grpo.dual_clip, 0, 100, "0", "Bound on the ratio for negative advantages; 0: none."),
    FLOAT("grpo.kl", grpo.kl, 0, 10, "0", "Weight of the divergence from the base model; 0: none."),
    FLOAT("grpo.temperature", grpo.temperature, 0.01, 5, "1", "Sampling temperature of training rollouts."),
    BOOL("grpo.normalize_std", grpo.normalize_std, "true", "Divide advantages by the group's standard deviation."),
    TEXT("grpo.loss_scale", grpo.loss_scale, "token|rollout", "token",
         "Every token of a step weighs the same, or every rollout."),
    FLOAT("grpo.beta2", grpo.beta2, 0.5, 0.99999, "0.99", "AdamW's second decay."),
    FLOAT("grpo.max_grad_norm", grpo.max_grad_norm, 0, 1000, "1", "The gradient is clipped to this norm; 0: never."),

    INT("eval.every", eval.every, 1, 1e6, "10", "Validate every so many reinforcement steps."),
    INT("eval.limit", eval.limit, 0, 1e9, "0", "Tasks of the validations in between; 0: all."),
    FLOAT("eval.temperature", eval.temperature, 0, 5, "0", "Sampling temperature of validation; 0: greedy."),
    INT("eval.base", eval.base, 0, 1e9, "20",
        "Measure the untrained model first, on so many questions of each validation (it is slow: its answers are long); 0: not."),

    TEXT("server.host", server.host, NULL, "127.0.0.1", "Address of the store and the gateway."),
    INT("server.port", server.port, 0, 65535, "0", "Port; 0: any free one."),
};

const lvn_option *lvn_train_option_table(size_t *out_count)
{
    *out_count = sizeof(table) / sizeof(*table);
    return table;
}
