// SPDX-License-Identifier: GPL-2.0-only
/*
 * A set of scenarios for every controller (schemes/SCHEME/host/NAME.yml), and properties of all
 * controllers.
 *
 *	test_controllers		compares the rates with schemes/SCHEME/tests/NAME.rates
 *	test_controllers --write	rewrites them: make -C kernel/tests rates
 */
#include "controller_path.h"

#define MS 1000000ull
#define END_NS (40 * MS)
#define SAMPLE_NS (MS / 2)
#define FAST 10000000000ull
#define SLOW 2500000000ull

static u64 step(u64 now_ns)
{
	return now_ns < 10 * MS || now_ns >= 25 * MS ? FAST : SLOW;
}

/* From the fast rate to the slow one in 15 ms, and back in 15 ms. */
static u64 ramp(u64 now_ns)
{
	u64 ramp_ns = now_ns < 5 * MS ? 0 : now_ns - 5 * MS;

	if (ramp_ns > 15 * MS)
		ramp_ns = ramp_ns < 30 * MS ? 30 * MS - ramp_ns : 0;
	return FAST - (FAST - SLOW) * ramp_ns / (15 * MS);
}

static u64 steady(u64 now_ns)
{
	return SLOW;
}

static bool always(u64 now_ns)
{
	return true;
}

/* The capacity falls while acknowledgements are lost. */
static bool interrupted(u64 now_ns)
{
	return now_ns < 8 * MS || now_ns >= 16 * MS;
}

static bool pausing(u64 now_ns)
{
	return now_ns < 12 * MS || now_ns >= 20 * MS;
}

static const struct {
	const char *name;
	u64 (*capacity)(u64 now_ns);
	bool (*answered)(u64 now_ns);
	bool (*busy)(u64 now_ns);
} scenarios[] = {
	{ "step", step, always, always },
	{ "ramp", ramp, always, always },
	{ "lost feedback", step, interrupted, always },
	{ "idle and restart", steady, always, pausing },
};

static const struct {
	const char *name;
	u8 kind;
} inputs[] = {
	{ "no signal", QSIGNAL_NONE },
	{ "MAX in bytes", QSIGNAL_MAX },
};

/* Rates in kbit/s, one every half millisecond. */
static void write_scenario(FILE *file, const struct controller_declared *declared, u32 scenario,
			   u32 input)
{
	struct path path = {
		.controller = declared->controller,
		.params = declared->defaults,
		.kind = inputs[input].kind,
		.capacity = scenarios[scenario].capacity,
		.answered = scenarios[scenario].answered,
		.busy = scenarios[scenario].busy,
	};
	u64 next_ns = 0;
	u64 end_ns;

	fprintf(file, "%s, %s:\n", scenarios[scenario].name, inputs[input].name);
	path_start(&path);
	for (end_ns = SAMPLE_NS; end_ns <= END_NS; end_ns += SAMPLE_NS) {
		path_run(&path, &next_ns, end_ns);
		fprintf(file, "%llu%s", (unsigned long long)path_rate(&path) / 1000,
			end_ns % (5 * MS) ? " " : "\n");
	}
	fprintf(file, "%llu packets, %llu dropped\n", (unsigned long long)path.packets,
		(unsigned long long)path.dropped);
}

static char *all_scenarios(const struct controller_declared *declared)
{
	size_t bytes;
	char *text;
	FILE *file = open_memstream(&text, &bytes);
	u32 scenario, input;

	fprintf(file, "The rates of `%s` in kbit/s, each half millisecond (make -C kernel/tests rates)\n",
		declared->controller->name);
	for (scenario = 0; scenario < sizeof(scenarios) / sizeof(*scenarios); scenario++)
		for (input = 0; input < (declared->by_signal ? 2 : 1); input++)
			write_scenario(file, declared, scenario, input);
	fclose(file);
	return text;
}

static void rates_are_those_of_the_snapshot(const struct controller_declared *declared, bool write)
{
	char *text = all_scenarios(declared), *known;
	size_t length = strlen(text), found;
	char name[256];
	FILE *file;

	snprintf(name, sizeof(name), "../../schemes/%s/tests/%s.rates", declared->scheme,
		 declared->controller->name);
	file = fopen(name, write ? "w" : "r");
	if (!file) {
		fprintf(stderr, "%s: cannot open it: run make -C kernel/tests rates\n", name);
		exit(1);
	}
	if (write) {
		EXPECT_EQUAL(fwrite(text, 1, length, file), length);
	} else {
		known = calloc(1, 2 * length);
		found = fread(known, 1, 2 * length, file);
		if (found != length || memcmp(known, text, length)) {
			fprintf(stderr, "%s: the rates have changed: run make -C kernel/tests rates and review the diff\n",
				name);
			exit(1);
		}
		free(known);
	}
	EXPECT_EQUAL(fclose(file), 0);
	free(text);
}

/* Random numbers of all orders of magnitude; the bounds are more likely. */
static u64 random_between(u64 min, u64 max)
{
	u64 value = random_u64() >> random_below(64);

	if (random_below(16) == 0)
		return random_below(2) ? min : max;
	return max - min == U64_MAX ? value : min + value % (max - min + 1);
}

static u64 parameter(const struct controller_declared *declared, const u8 *params, const char *field,
		     u64 fallback)
{
	const struct controller_parameter *entry = declared->parameters;
	u64 value = 0;

	while (entry->field && strcmp(entry->field, field))
		entry++;
	memcpy(&value, params + entry->offset, entry->bytes);	/* little-endian */
	return entry->field ? value : fallback;
}

static void random_params(const struct controller_declared *declared, u8 *params)
{
	const struct controller_parameter *entry;

	do {
		for (entry = declared->parameters; entry->field; entry++) {
			u64 value = random_between(entry->min, entry->max);

			memcpy(params + entry->offset, &value, entry->bytes);
		}
	} while (!declared->in_order(params));
}

static void random_event(const struct rate_controller *controller, void *state, const void *params,
			 u64 now_ns)
{
	const struct rate_ack ack = {
		.now_ns = now_ns,
		.rtt_ns = random_between(0, U64_MAX),
		.signal = random_between(0, U64_MAX),
		.bytes = random_between(0, U32_MAX),
		.has_signal = random_below(8),
		.kind = random_below(QSIGNAL_IND + 1),
		.unit = random_below(QSIGNAL_NS + 1),
	};
	const struct rate_feedback feedback = {
		.now_ns = now_ns,
		.magnitude = random_between(0, U32_MAX),
		.max = random_between(0, U32_MAX),
	};

	switch (random_below(10)) {
	case 0:
		if (controller->on_loss)
			controller->on_loss(state, params, now_ns);
		break;
	case 1:
		if (controller->start && random_below(16) == 0)
			controller->start(state, params, now_ns);
		break;
	case 2:
	case 3:
		if (controller->on_feedback)
			controller->on_feedback(state, params, &feedback);
		break;
	case 4:
	case 5:
		if (controller->on_sent)
			controller->on_sent(state, params, now_ns, ack.bytes);
		break;
	default:
		if (controller->on_ack)
			controller->on_ack(state, params, &ack);
	}
}

/* For any input and any parameters that netlink accepts. */
static void the_rate_stays_within_its_bounds(const struct controller_declared *declared)
{
	const struct rate_controller *controller = declared->controller;
	void *state = calloc(1, controller->state_bytes);
	u8 *params = calloc(1, controller->params_bytes);
	u64 min, max, rate, now_ns;
	int trial, event;

	for (trial = 0; trial < 2000; trial++) {
		random_params(declared, params);
		min = parameter(declared, params, "min_rate_bps", 1);
		max = parameter(declared, params, "max_rate_bps", RATE_MAX);
		now_ns = random_between(0, U64_MAX / 2);
		if (controller->start)
			controller->start(state, params, now_ns);
		for (event = 0; event < 1000; event++) {
			now_ns += random_between(0, PATH_SECOND);
			random_event(controller, state, params, now_ns);
			rate = controller->rate(state, params);
			EXPECT(min > 0 && rate >= min && rate <= max);
		}
	}
	free(params);
	free(state);
}

int main(int arguments, char **argument)
{
	bool write = arguments == 2 && !strcmp(argument[1], "--write");
	u32 i;

	for (i = 0; i < sizeof(controllers) / sizeof(*controllers); i++) {
		rates_are_those_of_the_snapshot(&controllers[i], write);
		the_rate_stays_within_its_bounds(&controllers[i]);
	}
	EXPECT(i > 0);
	return PASS();
}
