#include "runner/shim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The assembler reads the file; the build lists it as a dependency of this source. */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        "lvn_shim_bytes:\n"
        ".incbin \"" LVN_SHIM_FILE "\"\n"
        "lvn_shim_bytes_end:\n"
        ".byte 0\n"
        ".popsection\n"
        ".globl lvn_shim_bytes\n.hidden lvn_shim_bytes\n"
        ".globl lvn_shim_bytes_end\n.hidden lvn_shim_bytes_end\n");
extern const char lvn_shim_bytes[] __attribute__((visibility("hidden")));
extern const char lvn_shim_bytes_end[] __attribute__((visibility("hidden")));

lvn_code lvn_shim_open(const char *path, lvn_shim *out, lvn_err *err)
{
    *out = (lvn_shim){{0}, {0}};
    if (path) {
        if (access(path, R_OK))
            return lvn_fail(err, LVN_NOT_FOUND, "worker shim %s: %s", path, strerror(errno));
        snprintf(out->path, sizeof(out->path), "%s", path);
        return LVN_OK;
    }
    const char *base = getenv("TMPDIR");
    snprintf(out->folder, sizeof(out->folder), "%.3900s/levin-shim-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(out->folder)) {
        lvn_fail(err, LVN_IO, "folder %s: %s", out->folder, strerror(errno));
        out->folder[0] = 0;
        return LVN_IO;
    }
    snprintf(out->path, sizeof(out->path), "%.4000s/levin_worker.py", out->folder);
    FILE *f = fopen(out->path, "we");
    size_t size = (size_t)(lvn_shim_bytes_end - lvn_shim_bytes);
    bool is_written = f && fwrite(lvn_shim_bytes, 1, size, f) == size;
    if (f && fclose(f))
        is_written = false;
    if (is_written)
        return LVN_OK;
    lvn_fail(err, LVN_IO, "%s: %s", out->path, strerror(errno));
    lvn_shim_close(out);
    return LVN_IO;
}

void lvn_shim_close(lvn_shim *shim)
{
    if (!shim->folder[0])
        return;
    unlink(shim->path);
    rmdir(shim->folder);
    shim->folder[0] = 0;
}
