/* Faults for one directory, under a program that knows nothing of it (LD_PRELOAD).
 *
 * SHIM_DIR       only files below it are touched
 * SHIM_CONTROL   a directory of files that switch faults on: "sync" (fsync and fdatasync fail with EIO),
 *                "full" (writes that need more room fail with ENOSPC), "clock" (seconds to add to the wall
 *                clock), "slow" (microseconds that a sync takes longer), "held" (a sync begins once this file
 *                is gone); "fail-write", "fail-pwrite", "fail-pread", "fail-sync", "fail-rename", "fail-unlink",
 *                "fail-ftruncate" and "fail-fallocate" say which call fails and how: "28 spare-" is with errno 28
 *                where the path has "spare-" in it, "28 spare- once" the first time only, "28 spare- once 3" the
 *                fourth time only. "hits" gets a line for each call that failed so
 * SHIM_LOG       where every write and sync is recorded, for replaying what a power loss leaves
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

/* A line in the control directory's "hits" for each call that failed. */
static void tell_hit(const char *call, int number, const char *path) {
    char hits[1024];
    snprintf(hits, sizeof hits, "%s/hits", getenv("SHIM_CONTROL"));
    FILE *file = fopen(hits, "a");
    if (file == NULL) return;
    fprintf(file, "%s %d %s\n", call, number, path);
    fclose(file);
}

/* The errno with which a call on a path fails by its control file; 0 where it may go on. */
static int struck(const char *call, const char *path) {
    char name[64], control[1024], text[256] = "", part[200] = "", once[8] = "";
    int number = 0, passed = 0;
    snprintf(name, sizeof name, "fail-%s", call);
    if (path == NULL || !switched(name)) return 0;
    snprintf(control, sizeof control, "%s/%s", getenv("SHIM_CONTROL"), name);
    FILE *file = fopen(control, "r");
    if (file == NULL) return 0;
    char *line = fgets(text, sizeof text, file);
    fclose(file);
    if (line == NULL || sscanf(line, "%d %199s %7s %d", &number, part, once, &passed) < 2) return 0;
    if (strstr(path, part) == NULL) return 0;
    if (once[0] && passed > 0) {
        file = fopen(control, "w");
        if (file == NULL) return 0;
        fprintf(file, "%d %s once %d", number, part, passed - 1);
        fclose(file);
        return 0;
    }
    if (once[0]) remove(control);
    tell_hit(call, number, path);
    return number;
}

static int is_below(const char *path) {
    const char *dir = getenv("SHIM_DIR");
    return dir != NULL && strncmp(path, dir, strlen(dir)) == 0;
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
    int fault = path == NULL ? 0 : refused(fd, offset + size);
    if (fault == 0) fault = struck("pwrite", path);
    if (fault != 0) {
        errno = fault;
        return -1;
    }
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
    int fault = refused(fd, offset + size);
    if (fault == 0) fault = struck("write", path);
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    if (keeps(fd)) record(WRITE, path, offset, data, size);
    ssize_t n = real_write()(fd, data, size);
    wrote(fd, path, data, n, offset);
    return n;
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "pread");
    int fault = struck("pread", path_of(fd, name, sizeof name));
    if (fault == 0) return real(fd, data, size, offset);
    errno = fault;
    return -1;
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset) { return pread(fd, data, size, offset); }

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
    int fault = switched("sync") ? EIO : struck("sync", path);
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    while (switched("held")) usleep(1000);
    int64_t number = __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    record(BEGIN, path, number, NULL, 0);
    int answer = real(fd);
    long slow = number_in("slow");
    if (slow > 0) usleep(slow);
    if (answer == 0)
        record(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? DIRSYNC : SYNC, path, number, NULL, 0);
    return answer;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int ftruncate(int fd, off_t size) {
    static int (*real)(int, off_t);
    char name[1024];
    if (real == NULL) real = dlsym(RTLD_NEXT, "ftruncate");
    const char *path = path_of(fd, name, sizeof name);
    int fault = struck("ftruncate", path);
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    int answer = real(fd, size);
    if (path != NULL && answer == 0) record(TRUNCATE, path, size, NULL, 0);
    return answer;
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

/* Recorded as the truncation that makes a file as long. */
int posix_fallocate(int fd, off_t offset, off_t size) {
    static int (*real)(int, off_t, off_t);
    char name[1024];
    struct stat st;
    if (real == NULL) real = dlsym(RTLD_NEXT, "posix_fallocate");
    const char *path = path_of(fd, name, sizeof name);
    int fault = path == NULL ? 0 : refused(fd, offset + size);
    if (fault == 0) fault = struck("fallocate", path);
    if (fault != 0) return fault;
    int longer = path != NULL && fstat(fd, &st) == 0 && offset + size > st.st_size;
    int answer = real(fd, offset, size);
    if (longer && answer == 0) record(TRUNCATE, path, offset + size, NULL, 0);
    return answer;
}

int posix_fallocate64(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

int rename(const char *from, const char *to) {
    static int (*real)(const char *, const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "rename");
    int fault = is_below(from) ? struck("rename", to) : 0;
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    int answer = real(from, to);
    if (answer == 0 && is_below(from)) record(RENAME, from, 0, to, strlen(to));
    return answer;
}

int unlink(const char *path) {
    static int (*real)(const char *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "unlink");
    int fault = is_below(path) ? struck("unlink", path) : 0;
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    int answer = real(path);
    if (answer == 0 && is_below(path)) record(UNLINK, path, 0, NULL, 0);
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
