/* Syncs that take longer by SLOW_SYNC_US microseconds, under a program that knows nothing of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowed(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int answer = real(fd);
    const char *text = getenv("SLOW_SYNC_US");
    long us = text == NULL ? 0 : atol(text);
    struct timespec longer = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&longer, NULL);
    return answer;
}

int fsync(int fd) { return slowed("fsync", fd); }
int fdatasync(int fd) { return slowed("fdatasync", fd); }
