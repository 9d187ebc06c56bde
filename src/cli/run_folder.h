/* The folder of a run:
 *   config.json     every option as it was            levin.db        the store
 *   metrics.jsonl   what happened                      logs/           a file an attempt
 *   state/          the trainer, to resume from        policy/         the adapter being served
 *   checkpoints/vN/ adapter.gguf and peft/, at each validation; `best` and `last` beside them are links
 *   report.html     made at the end and by `levin report`
 *   lock            held while a process works here */
#ifndef LVN_CLI_RUN_FOLDER_H
#define LVN_CLI_RUN_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "config/train.h"
#include "engine/train.h"

/* Where a run stands; written whole to state/progress.json, then the older trainer state goes. */
typedef struct lvn_progress {
    int64_t sft_done, grpo_done; /* steps */
    int64_t version;
    bool is_base_measured, is_sft_measured, is_complete;
    double best_score;
    int64_t best_version;
    double seconds; /* spent so far, over all lives of the run */
} lvn_progress;

typedef struct lvn_run_folder {
    const char *path; /* absolute */
    int lock_fd;
} lvn_run_folder;

/* Makes the folder and its parts. Without `is_resume` an existing run there is LVN_CONFLICT; with it a missing one is
 * LVN_NOT_FOUND. LVN_CONFLICT also when another process works there (named by its id); LVN_FULL: less than `need_bytes` free. */
lvn_code lvn_run_folder_open(lvn_arena *arena, const char *path, bool is_resume, uint64_t need_bytes, lvn_run_folder *out,
                             lvn_err *err) LVN_MUST_USE;
void lvn_run_folder_close(lvn_run_folder *folder);

/* A path below a run's folder, in `arena`. */
const char *lvn_run_path(lvn_arena *arena, const char *run, const char *format, ...) __attribute__((format(printf, 3, 4)));

lvn_code lvn_run_save_config(const char *run, const lvn_train_options *options, lvn_err *err) LVN_MUST_USE;
/* Over the defaults in `options`. */
lvn_code lvn_run_load_config(lvn_arena *arena, const char *run, lvn_train_options *options, lvn_err *err) LVN_MUST_USE;

lvn_code lvn_run_save_progress(const char *run, const lvn_progress *progress, const lvn_trainer *trainer, lvn_err *err) LVN_MUST_USE;
/* LVN_EMPTY: nothing was saved yet. `trainer` may be NULL. */
lvn_code lvn_run_load_progress(const char *run, lvn_progress *progress, lvn_trainer *trainer, lvn_err *err) LVN_MUST_USE;

/* checkpoints/v<version>/ with both adapter forms, and the links. `base_name` is what PEFT shall find as the base model. */
lvn_code lvn_run_save_checkpoint(const char *run, int64_t version, bool is_best, const lvn_trainer *trainer, const char *base_name,
                                 lvn_err *err) LVN_MUST_USE;

/* Finds an adapter: "best", "last", "base" (gives ""), a version number or a path. LVN_NOT_FOUND says what there is. */
lvn_code lvn_run_find_adapter(lvn_arena *arena, const char *run, const char *which, const char **out, lvn_err *err) LVN_MUST_USE;

/* Writes `text` to a temporary file beside `path` and renames it. */
lvn_code lvn_write_whole(const char *path, lvn_str text, lvn_err *err) LVN_MUST_USE;
lvn_code lvn_read_whole(lvn_arena *arena, const char *path, size_t max_bytes, lvn_str *out, lvn_err *err) LVN_MUST_USE;

#endif
