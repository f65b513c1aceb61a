/* Shifts the wall clock of a process, for tests: loaded by LD_PRELOAD.
 *
 * The offset in nanoseconds is the first eight bytes, little-endian, of the file that MILLPOND_CLOCK_OFFSET names. It is
 * mapped, so that a test can step the clock while the process runs. The monotonic clock is left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static volatile const int64_t *offset_ns;

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("MILLPOND_CLOCK_OFFSET");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) abort();
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) abort();
  offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  int failed = real_clock_gettime(clock, time);
  if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t shifted_ns = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + *offset_ns;
  time->tv_sec = shifted_ns / 1000000000;
  time->tv_nsec = shifted_ns % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
