/* Counts the calls that touch files under one folder, and lets the process die or the call fail at the nth of them.
 *
 * Preloaded into a process, which then says what is to happen: faults_arm(folder, fault, nth, error, journal). Until
 * then, and for all other files, every call does what it always does. Each call that counts is a line of the journal:
 * its number, its kind and its path. Reads, locks and what is written through a memory map are not counted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NOTHING, KILL_BEFORE, KILL_HALFWAY, KILL_AFTER, FAIL_ONCE, FAIL_FROM_NOW_ON };
enum verdict { DO, DO_HALF, DO_THEN_DIE, FAIL };

static char root[PATH_MAX];
static int fault, failure, journal = -1;
static long nth;
static atomic_long calls;

void faults_arm(const char *folder, int what, long at, int error, int descriptor) {
    snprintf(root, sizeof root, "%s/", folder);
    fault = what, nth = at, failure = error, journal = descriptor;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* What becomes of this call. A full disk (ENOSPC) only hits calls that need room. */
static enum verdict judge(const char *kind, const char *path, int needs_room) {
    if (!root[0] || strncmp(path, root, strlen(root)) != 0) return DO;
    long number = atomic_fetch_add(&calls, 1) + 1;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s%s %s\n", number, kind, needs_room ? "+" : "", path + strlen(root));
    if (journal >= 0) syscall(SYS_write, journal, line, length);
    if (number < nth || fault == NOTHING) return DO;
    if (fault == FAIL_FROM_NOW_ON || (fault == FAIL_ONCE && number == nth))
        return failure == ENOSPC && !needs_room ? DO : FAIL;
    if (number > nth) return DO;
    if (fault == KILL_BEFORE) die();
    return fault == KILL_HALFWAY ? DO_HALF : fault == KILL_AFTER ? DO_THEN_DIE : DO;
}

static enum verdict judge_descriptor(const char *kind, int descriptor, int needs_room) {
    char link[64], path[PATH_MAX];
    if (!root[0]) return DO;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length < 0) return DO;
    path[length] = 0;
    return judge(kind, path, needs_room);
}

static enum verdict judge_name(const char *kind, int folder, const char *name, int needs_room) {
    char link[64], path[2 * PATH_MAX];
    if (!root[0] || !name) return DO;
    if (name[0] == '/') return judge(kind, name, needs_room);
    if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return DO;
    snprintf(path + length, sizeof path - length, "/%s", name);
    return judge(kind, path, needs_room);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define RESULT(judged, call) \
    enum verdict what = judged; \
    if (what == FAIL) return errno = failure, -1; \
    __auto_type result = call; \
    if (what == DO_THEN_DIE || what == DO_HALF) die(); \
    return result

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) \
        REAL(name); \
        RESULT(judge_name("open", AT_FDCWD, path, !!(flags & O_CREAT)), real(path, flags, mode)); \
    }

#define OPENING_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE(flags) \
        REAL(name); \
        RESULT(judge_name("open", folder, path, !!(flags & O_CREAT)), real(folder, path, flags, mode)); \
    }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

ssize_t write(int descriptor, const void *bytes, size_t count) {
    REAL(write);
    RESULT(judge_descriptor("write", descriptor, 1), real(descriptor, bytes, what == DO_HALF ? count / 2 : count));
}

#define WRITING_AT(name, offset_t) \
    ssize_t name(int descriptor, const void *bytes, size_t count, offset_t at) { \
        REAL(name); \
        RESULT(judge_descriptor("pwrite", descriptor, 1), \
               real(descriptor, bytes, what == DO_HALF ? count / 2 : count, at)); \
    }

WRITING_AT(pwrite, off_t)
WRITING_AT(pwrite64, off64_t)

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(writev);
    RESULT(judge_descriptor("writev", descriptor, 1), real(descriptor, parts, what == DO_HALF ? count / 2 : count));
}

int fsync(int descriptor) {
    REAL(fsync);
    RESULT(judge_descriptor("fsync", descriptor, 1), real(descriptor));
}

int fdatasync(int descriptor) {
    REAL(fdatasync);
    RESULT(judge_descriptor("fdatasync", descriptor, 1), real(descriptor));
}

int ftruncate(int descriptor, off_t length) {
    REAL(ftruncate);
    RESULT(judge_descriptor("ftruncate", descriptor, 1), real(descriptor, length));
}

int ftruncate64(int descriptor, off64_t length) {
    REAL(ftruncate64);
    RESULT(judge_descriptor("ftruncate", descriptor, 1), real(descriptor, length));
}

/* Linux lets go of a descriptor also where close fails. */
int close(int descriptor) {
    REAL(close);
    enum verdict what = judge_descriptor("close", descriptor, 0);
    int result = real(descriptor);
    if (what == DO_THEN_DIE || what == DO_HALF) die();
    if (what == FAIL) return errno = failure, -1;
    return result;
}

int rename(const char *from, const char *to) {
    REAL(rename);
    RESULT(judge_name("rename", AT_FDCWD, to, 1), real(from, to));
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    RESULT(judge_name("rename", to_folder, to, 1), real(from_folder, from, to_folder, to));
}

int link(const char *from, const char *to) {
    REAL(link);
    RESULT(judge_name("link", AT_FDCWD, to, 1), real(from, to));
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    REAL(linkat);
    RESULT(judge_name("link", to_folder, to, 1), real(from_folder, from, to_folder, to, flags));
}

int unlink(const char *path) {
    REAL(unlink);
    RESULT(judge_name("unlink", AT_FDCWD, path, 0), real(path));
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    RESULT(judge_name("unlink", folder, path, 0), real(folder, path, flags));
}

int rmdir(const char *path) {
    REAL(rmdir);
    RESULT(judge_name("rmdir", AT_FDCWD, path, 0), real(path));
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    RESULT(judge_name("mkdir", AT_FDCWD, path, 1), real(path, mode));
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(mkdirat);
    RESULT(judge_name("mkdir", folder, path, 1), real(folder, path, mode));
}

int fchmod(int descriptor, mode_t mode) {
    REAL(fchmod);
    RESULT(judge_descriptor("chmod", descriptor, 0), real(descriptor, mode));
}
