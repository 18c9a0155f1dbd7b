/* Pushes and pops ranges at a rate, 0 for as fast as possible, for some seconds. Prints their number. The program does not
 * catch up on ranges that it could not push while it had no core. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int roctxRangePushA(const char *) __attribute__((weak));
int roctxRangePop(void) __attribute__((weak));
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}
int main(int argc, char **argv) {
    long rate = atol(argv[1]), pairs = 0, due = now(), end = due + (long)(atof(argv[2]) * 1e9);
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            roctxRangePushA("forward");
            roctxRangePop();
        }
        pairs += 1000;
        if (rate == 0) continue;
        due += 1000000000000l / rate;
        long late = now();
        if (late > due + 1000000) due = late;
        while (now() < due) {}
    }
    printf("%ld", pairs);
    return 0;
}
