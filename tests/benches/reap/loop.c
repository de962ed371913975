/*
 * The reference of `cargo xtask bench reap`: the least that ends a cgroup. It asks nobody whose the processes are, and
 * checks nothing.
 *
 * Reads lines `v1 DIRECTORY` or `v2 DIRECTORY`, and answers each with `done NANOSECONDS` or, after a second, `stuck`.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L

static char list[1 << 16];

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void pause_100us(void)
{
	struct timespec t = { 0, 100000 };
	nanosleep(&t, NULL);
}

static void put(int dir, const char *file, const char *value)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, value, strlen(value)) < 0)
		perror(file);
	close(fd);
}

/* Kills what is listed; how much that is. An open file of v1 shows its first list again and again. */
static int kill_listed(int dir)
{
	int count = 0, procs = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(procs, list, sizeof list - 1);
	close(procs);
	list[length > 0 ? length : 0] = 0;
	for (char *at = list; *at; at = strchr(at, '\n') + 1, count++)
		kill(atoi(at), SIGKILL);
	return count;
}

static int end_v1(int dir, long until)
{
	int left = kill_listed(dir);
	put(dir, "freezer.state", "THAWED");
	while ((left = kill_listed(dir)) && now() < until)
		pause_100us();
	return left;
}

static int end_v2(int dir, long until)
{
	put(dir, "cgroup.kill", "1");
	struct pollfd events = { openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC), POLLPRI, 0 };
	int left = 1;
	while (left && now() < until) {
		char text[256] = { 0 };
		if (pread(events.fd, text, sizeof text - 1, 0) < 0)
			break;
		left = !strstr(text, "populated 0");
		if (left)
			poll(&events, 1, 100);
	}
	close(events.fd);
	return left;
}

int main(void)
{
	char version[3], path[4096];
	while (scanf("%2s %4095s", version, path) == 2) {
		long start = now(), until = start + SECOND;
		int dir = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
		int left = strcmp(version, "v1") ? end_v2(dir, until) : end_v1(dir, until);
		while (!left && rmdir(path) && now() < until) {
			left = errno != EBUSY;
			pause_100us();
		}
		long took = now() - start;
		close(dir);
		if (left || !access(path, F_OK))
			printf("stuck\n");
		else
			printf("done %ld\n", took);
		fflush(stdout);
	}
	return 0;
}
