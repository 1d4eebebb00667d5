/* Faults for one directory, under a program that knows nothing of it (LD_PRELOAD).
 *
 * SHIM_DIR       only files below it are touched
 * SHIM_CONTROL   a directory of files that switch faults on: "sync" (fsync and fdatasync fail with EIO),
 *                "full" (writes that need more room fail with ENOSPC), "clock" (seconds to add to the wall
 *                clock), "slow" (microseconds that a sync takes longer)
 * SHIM_LOG       where every write and sync is recorded, for replaying what a power loss leaves
 * SHIM_FAULTS    calls that fail: "call:errno:part of the path:after:times", several with ';' between them. The
 *                call is write, sync, read, rename, truncate or open; so many that fit it succeed first, and so
 *                many fail then, all of them where times is -1
 * SHIM_HITS      a file that gets a line for each call that failed so
 *
 * A record of the log: type, path length, offset, size (4 native 64-bit numbers), the path, the bytes.
 *
 * A sync is recorded when it begins and when it has ended, for only what was written before it began is
 * sure to be on disk; both bear a number in place of the offset. A write is recorded once it is done. One
 * through a descriptor opened with O_DSYNC is recorded before it, and as KEPT once it is done.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096
enum { WRITE = 1, SYNC = 2, TRUNCATE = 3, RENAME = 4, UNLINK = 5, DIRSYNC = 6, BEGIN = 7, KEPT = 8, CREATE = 9 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -2;
static char sync_always[MOST];
static int64_t syncs = 0;

static const char *path_of(int fd, char *into, size_t size) {
    char link[64];
    const char *dir = getenv("SHIM_DIR");
    if (dir == NULL || fd < 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, into, size - 1);
    if (n < 0) return NULL;
    into[n] = 0;
    return strncmp(into, dir, strlen(dir)) == 0 ? into : NULL;
}

static int switched(const char *name) {
    char path[1024];
    const char *control = getenv("SHIM_CONTROL");
    if (control == NULL) return 0;
    snprintf(path, sizeof path, "%s/%s", control, name);
    return access(path, F_OK) == 0;
}

#define MOST_RULES 16
static struct rule { char call[16], part[128]; int error; long after, times, seen; } rules[MOST_RULES];
static int rule_count = -1;

static void read_rules(void) {
    const char *text = getenv("SHIM_FAULTS");
    int count = 0;
    while (text != NULL && *text && count < MOST_RULES) {
        struct rule *rule = &rules[count];
        if (sscanf(text, "%15[^:]:%d:%127[^:]:%ld:%ld", rule->call, &rule->error, rule->part, &rule->after,
                   &rule->times) == 5)
            count++;
        text = strchr(text, ';');
        if (text != NULL) text++;
    }
    rule_count = count;
}

static void tell_hit(const struct rule *rule, const char *path) {
    const char *file = getenv("SHIM_HITS");
    static int (*real_open)(const char *, int, ...);
    static ssize_t (*real_writev)(int, const struct iovec *, int);
    char line[1400];
    if (file == NULL) return;
    if (real_open == NULL) real_open = dlsym(RTLD_NEXT, "open");
    if (real_writev == NULL) real_writev = dlsym(RTLD_NEXT, "writev");
    int fd = real_open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%s %d %s\n", rule->call, rule->error, path);
    struct iovec part = {line, n};
    if (fd >= 0) {
        real_writev(fd, &part, 1);
        close(fd);
    }
}

/* The errno with which SHIM_FAULTS has this call fail; 0 where it may go on. */
static int faulty(const char *call, const char *path) {
    int error = 0;
    pthread_mutex_lock(&lock);
    if (rule_count < 0) read_rules();
    for (int i = 0; i < rule_count && error == 0; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->call, call) != 0 || strstr(path, rule->part) == NULL) continue;
        long seen = rule->seen++;
        if (seen >= rule->after && (rule->times < 0 || seen < rule->after + rule->times)) {
            error = rule->error;
            tell_hit(rule, path);
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static ssize_t (*real_write(void))(int, const void *, size_t) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL) real = dlsym(RTLD_NEXT, "write");
    return real;
}

static void record(int type, const char *path, int64_t offset, const void *data, int64_t size) {
    const char *file = getenv("SHIM_LOG");
    if (file == NULL) return;
    pthread_mutex_lock(&lock);
    if (log_fd == -2) log_fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int64_t head[4] = {type, (int64_t)strlen(path), offset, size};
    struct iovec parts[3] = {
        {head, sizeof head}, {(void *)path, strlen(path)}, {(void *)data, data ? (size_t)size : 0}};
    static ssize_t (*real)(int, const struct iovec *, int);
    if (real == NULL) real = dlsym(RTLD_NEXT, "writev");
    real(log_fd, parts, 3);
    pthread_mutex_unlock(&lock);
}

static int keeps(int fd) { return fd < MOST && sync_always[fd]; }

/* The errno with which this write fails; 0 where it may go on. */
static int refused(int fd, off_t end) {
    struct stat st;
    if (keeps(fd) && switched("sync")) return EIO;
    return switched("full") && fstat(fd, &st) == 0 && end > st.st_size ? ENOSPC : 0;
}

static void wrote(int fd, const char *path, const void *data, ssize_t n, off_t offset) {
    if (n > 0) record(keeps(fd) ? KEPT : WRITE, path, offset, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "pwrite");
    const char *path = path_of(fd, name, sizeof name);
    if (path != NULL && (errno = faulty("write", path)) != 0) return -1;
    if (path != NULL && (errno = refused(fd, offset + size)) != 0) return -1;
    if (path != NULL && keeps(fd)) record(WRITE, path, offset, data, size);
    ssize_t n = real(fd, data, size, offset);
    if (path != NULL) wrote(fd, path, data, n, offset);
    return n;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t write(int fd, const void *data, size_t size) {
    char name[1024];
    const char *path = path_of(fd, name, sizeof name);
    if (path == NULL) return real_write()(fd, data, size);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if ((errno = faulty("write", path)) != 0 || (errno = refused(fd, offset + size)) != 0) return -1;
    if (keeps(fd)) record(WRITE, path, offset, data, size);
    ssize_t n = real_write()(fd, data, size);
    wrote(fd, path, data, n, offset);
    return n;
}

static ssize_t gathered(int fd, const struct iovec *parts, int count, off_t offset, int positioned) {
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t n = positioned ? pwrite(fd, parts[i].iov_base, parts[i].iov_len, offset + total)
                               : write(fd, parts[i].iov_base, parts[i].iov_len);
        if (n < 0) return total > 0 ? total : -1;
        total += n;
        if ((size_t)n < parts[i].iov_len) break;
    }
    return total;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "pwritev");
    if (path_of(fd, name, sizeof name) == NULL) return real(fd, parts, count, offset);
    return gathered(fd, parts, count, offset, 1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "writev");
    if (path_of(fd, name, sizeof name) == NULL) return real(fd, parts, count);
    return gathered(fd, parts, count, 0, 0);
}

/* The number written in a control file, 0 where there is none. */
static long number_in(const char *name) {
    char path[1024], text[32] = "";
    const char *control = getenv("SHIM_CONTROL");
    if (control == NULL || !switched(name)) return 0;
    snprintf(path, sizeof path, "%s/%s", control, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    char *line = fgets(text, sizeof text, file);
    fclose(file);
    return line ? atol(text) : 0;
}

static int synced(int fd, const char *call) {
    char name[1024];
    struct stat st;
    int (*real)(int) = dlsym(RTLD_NEXT, call);
    const char *path = path_of(fd, name, sizeof name);
    if (path == NULL) return real(fd);
    if ((errno = switched("sync") ? EIO : faulty("sync", path)) != 0) return -1;
    int64_t number = __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    record(BEGIN, path, number, NULL, 0);
    int answer = real(fd);
    long slow = number_in("slow");
    if (slow > 0) usleep(slow);
    if (answer == 0)
        record(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? DIRSYNC : SYNC, path, number, NULL, 0);
    return answer;
}

ssize_t pread(int fd, void *into, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "pread");
    const char *path = path_of(fd, name, sizeof name);
    if (path != NULL && (errno = faulty("read", path)) != 0) return -1;
    return real(fd, into, size, offset);
}

ssize_t pread64(int fd, void *into, size_t size, off_t offset) { return pread(fd, into, size, offset); }

ssize_t read(int fd, void *into, size_t size) {
    static ssize_t (*real)(int, void *, size_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "read");
    const char *path = path_of(fd, name, sizeof name);
    if (path != NULL && (errno = faulty("read", path)) != 0) return -1;
    return real(fd, into, size);
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int ftruncate(int fd, off_t size) {
    static int (*real)(int, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "ftruncate");
    const char *path = path_of(fd, name, sizeof name);
    if (path != NULL && (errno = faulty("truncate", path)) != 0) return -1;
    int answer = real(fd, size);
    if (path != NULL && answer == 0) record(TRUNCATE, path, size, NULL, 0);
    return answer;
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int rename(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "rename");
    const char *dir = getenv("SHIM_DIR");
    int ours = dir != NULL && strncmp(from, dir, strlen(dir)) == 0;
    int error = ours ? faulty("rename", to) : 0;
    if (error != 0) {
        errno = error;
        return -1;
    }
    int answer = real(from, to);
    if (answer == 0 && dir != NULL && strncmp(from, dir, strlen(dir)) == 0)
        record(RENAME, from, 0, to, strlen(to));
    return answer;
}

int unlink(const char *path) {
    static int (*real)(const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "unlink");
    int answer = real(path);
    const char *dir = getenv("SHIM_DIR");
    if (answer == 0 && dir != NULL && strncmp(path, dir, strlen(dir)) == 0) record(UNLINK, path, 0, NULL, 0);
    return answer;
}

static int opened(int fd, int flags, int existed) {
    char name[1024];
    if (fd >= 0 && fd < MOST) sync_always[fd] = (flags & O_DSYNC) != 0;
    const char *made = flags & O_CREAT && !existed ? path_of(fd, name, sizeof name) : NULL;
    if (made != NULL) record(CREATE, made, 0, NULL, 0);
    return fd;
}

int open(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (real == NULL) real = dlsym(RTLD_NEXT, "open");
    const char *dir = getenv("SHIM_DIR");
    int error = dir != NULL && strncmp(path, dir, strlen(dir)) == 0 ? faulty("open", path) : 0;
    if (error != 0) {
        errno = error;
        return -1;
    }
    int existed = access(path, F_OK) == 0;
    return opened(real(path, flags, mode), flags, existed);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return open(path, flags, mode);
}

int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(which, at);
    if (answer == 0 && which == CLOCK_REALTIME) at->tv_sec += number_in("clock");
    return answer;
}
