/* Which code ran: gcc's -fsanitize-coverage=trace-pc made into the counters that libFuzzer reads.
 *
 * gcc calls a function at every block of code and leaves it to us to count; clang's counters in line, which
 * libFuzzer was written for, it has not. So every place of a call gets a counter of its own, found by its address.
 */
#include <stdint.h>
#include <stddef.h>

enum { PLACES = 1 << 18, MOST_PROBES = 64 };

struct place { uintptr_t pc, flags; };

static uint8_t counters[PLACES];
static struct place places[PLACES];

void __sanitizer_cov_trace_pc(void) {
    uintptr_t pc = (uintptr_t)__builtin_return_address(0);
    size_t at = (pc * 0x9E3779B97F4A7C15u) >> 46;
    for (int probes = 0; probes < MOST_PROBES; probes++, at = (at + 1) & (PLACES - 1)) {
        if (places[at].pc == 0) places[at].pc = pc;
        if (places[at].pc == pc) {
            if (++counters[at] == 0) counters[at] = 255;
            return;
        }
    }
}

uint8_t *sluice_counters(void) { return counters; }
struct place *sluice_places(void) { return places; }
size_t sluice_place_count(void) { return PLACES; }

/* What is compared with what goes to libFuzzer, once it is known where its functions are: not before, and never in
 * a replay. Each is called last, so that it sees who called us as whoever compares. */
#define TOLD(name, type) \
    void (*sluice_##name)(type, type); \
    void __sanitizer_cov_trace_##name(type left, type right) { if (sluice_##name) sluice_##name(left, right); }
TOLD(cmp1, uint8_t) TOLD(cmp2, uint16_t) TOLD(cmp4, uint32_t) TOLD(cmp8, uint64_t)
TOLD(const_cmp1, uint8_t) TOLD(const_cmp2, uint16_t) TOLD(const_cmp4, uint32_t) TOLD(const_cmp8, uint64_t)
TOLD(switch, uint64_t)
void __sanitizer_cov_trace_cmpf(float left, float right) { (void)left; (void)right; }
void __sanitizer_cov_trace_cmpd(double left, double right) { (void)left; (void)right; }
