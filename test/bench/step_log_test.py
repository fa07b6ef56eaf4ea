#!/usr/bin/env python3
"""The arithmetic of pause_bench, on logs of known figures."""
import sys

sys.dont_write_bytecode = True

from pauses import step_log  # noqa: E402

MS = 1_000_000


def log(*made, run=0):
    """Steps (epoch, step, begin in ms, end in ms) of one run."""
    return [step_log.Step(epoch, step, begin * MS, end * MS, 2, run) for epoch, step, begin, end in made]


def step_event(epoch, step, begin, end):
    return {"event": "step", "epoch": epoch, "step": step, "begin_ns": begin * MS, "t_ns": end * MS, "world": 2}


def about(value, expected):
    assert abs(value - expected) < 1e-9, (value, expected)


def steady(epoch, steps, begin):
    return [(epoch, step, begin + 20 * step, begin + 20 * step + 19) for step in range(steps)]


def a_late_step_counts_beyond_its_usual_time():
    # Something happens at 205 ms; the step of that moment takes 19 + 300 ms.
    made = log(*steady(0, 10, 0), (0, 10, 200, 519), *((0, 11 + i, 520 + 20 * i, 539 + 20 * i) for i in range(10)))
    inside, edge = step_log.standstill(made, 205 * MS, 305 * MS)
    about(inside, 0.3)
    assert edge is None
    about(step_log.standstill(made, 100 * MS, 150 * MS)[0], 0)


def an_epochs_edge_is_compared_with_edges():
    made = log(*steady(0, 5, 0), *steady(1, 5, 110), *steady(2, 5, 220), *steady(3, 5, 400))
    assert step_log.standstill(made, 325 * MS, 330 * MS)[1] is not None
    about(step_log.standstill(made, 325 * MS, 330 * MS)[1], 0.07)


def a_new_process_begins_again():
    made = log(*steady(0, 20, 0)) + log(*((0, 15 + i, 1400 + 20 * i, 1419 + 20 * i) for i in range(5)), run=1)
    seconds, redone = step_log.restarted(made, 390 * MS, 50)
    about(seconds, 1.4 - 0.399 - 0.001)
    assert redone == 5, redone
    assert step_log.restarted(made, 2000 * MS, 50) is None


def a_rollback_in_the_same_process():
    events = [{"event": "start"}]
    for epoch, step, begin, end in (*steady(0, 50, 0), *((1, i, 1000 + 20 * i, 1019 + 20 * i) for i in range(3))):
        events.append(step_event(epoch, step, begin, end))
    assert step_log.restarted(step_log.steps(events), 1055 * MS, 50) is None
    events.append({"event": "boundary_leave", "result": "rollback"})
    assert step_log.restarted(step_log.steps(events), 1055 * MS, 50) is None
    events += [step_event(0, i, 3000 + 20 * i, 3019 + 20 * i) for i in range(3)]
    seconds, redone = step_log.restarted(step_log.steps(events), 1055 * MS, 50)
    about(seconds, 3 - 1.059 - 0.001)
    assert redone == 53, redone


def a_rollback_that_costs_no_step():
    # The servers are lost in an epoch's first step.
    events = [{"event": "start"}] + [step_event(*made) for made in steady(0, 50, 0)]
    events.append({"event": "boundary_leave", "result": "rollback"})
    events += [step_event(*made) for made in steady(1, 3, 1200)]
    seconds, redone = step_log.restarted(step_log.steps(events), 1005 * MS, 50)
    about(seconds, 1.2 - 0.999 - 0.001)
    assert redone == 0, redone


for test in (a_late_step_counts_beyond_its_usual_time, an_epochs_edge_is_compared_with_edges,
             a_new_process_begins_again, a_rollback_in_the_same_process,
             a_rollback_that_costs_no_step):
    test()
