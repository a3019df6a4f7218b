"""Windows of charts, and when a scale is logarithmic by itself."""

import pytest

from ergon_site.access.core.charts import DAY, HOUR, KEPT, MINUTE, RANGES, Chart, Line, RangeError, Window, window

NOW = 1_794_910_830.5  # half past a minute


@pytest.mark.parametrize(
    ("name", "step", "steps"), [("15min", 1, 15), ("hour", 1, 60), ("day", 10, 144), ("week", 60, 168)]
)
def test_a_named_range_ends_with_the_step_that_has_begun(name: str, step: int, steps: int) -> None:
    chosen = window(NOW, name=name)
    assert (chosen.step, len(chosen.times)) == (step * MINUTE, steps)
    assert chosen.ends - chosen.begins == RANGES[name]
    assert chosen.ends - chosen.step <= NOW < chosen.ends
    assert chosen.place(NOW) == steps - 1
    assert chosen.place(chosen.begins) == 0


def test_the_last_hour_is_shown_if_nothing_is_asked_for() -> None:
    assert window(NOW) == window(NOW, name="hour")


@pytest.mark.parametrize(
    ("begins", "ends", "step", "steps"),
    [
        (NOW - HOUR, NOW - HOUR / 2, MINUTE, 31),
        (NOW - HOUR, NOW + DAY, MINUTE, 61),  # the future is not shown
        (NOW - 70, NOW - 10, MINUTE, 5),  # too short: five steps at least
        (NOW - 3 * DAY, NOW - 3 * DAY + HOUR, HOUR, 5),  # of old times there are hours
        (NOW - 2 * DAY + 90, NOW, 30 * MINUTE, 97),
        (NOW - 7 * DAY, NOW, HOUR, 169),
    ],
)
def test_a_dragged_range_covers_what_was_dragged(begins: float, ends: float, step: int, steps: int) -> None:
    chosen = window(NOW, begins=str(int(begins)), ends=str(int(ends)))
    assert (chosen.step, len(chosen.times)) == (step, steps)
    assert chosen.begins <= begins
    assert chosen.ends >= int(min(ends, NOW))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"name": "year"}, "one of 15min, hour, day, week"),
        ({"begins": "5"}, "whole seconds"),
        ({"ends": "5"}, "whole seconds"),
        ({"begins": "-1", "ends": "5"}, "whole seconds"),
        ({"begins": "1e9", "ends": "5"}, "whole seconds"),
        ({"begins": "٣", "ends": "5"}, "whole seconds"),
        ({"begins": "9" * 5000, "ends": "9" * 5000}, "whole seconds"),
        ({"begins": "9" * 10, "ends": "9" * 10}, "before it ends"),
        ({"begins": str(int(NOW)), "ends": str(int(NOW) - 60)}, "before it ends"),
        ({"begins": str(int(NOW) - 7 * DAY - 60), "ends": str(int(NOW))}, "7 days at most"),
        ({"begins": str(int(NOW) - KEPT - 60), "ends": str(int(NOW) - KEPT + HOUR)}, "go back 8 days"),
    ],
)
def test_a_range_that_no_chart_shows_is_refused_in_words(asked: dict[str, str], why: str) -> None:
    with pytest.raises(RangeError, match=why):
        window(NOW, **asked)


@pytest.mark.parametrize(("step", "words"), [(MINUTE, "minute"), (10 * MINUTE, "10 min"), (HOUR, "hour")])
def test_a_step_in_words(step: int, words: str) -> None:
    assert Window(begins=0, ends=HOUR, step=step).step_words == words


@pytest.mark.parametrize(
    ("values", "is_spiky"),
    [
        ([], False),
        ([None, 0, 0], False),
        ([1, 1000], False),  # too few to call one of them usual
        ([1, 2, 3, 2, 1, 50], True),
        ([1, 2, 3, 2, 1, 20], False),
        ([0, None, 10, 10, 10, 10, 201], True),
    ],
)
def test_one_spike_that_hides_the_rest_asks_for_a_logarithmic_scale(
    values: list[float | None], *, is_spiky: bool
) -> None:
    lines = [Line(name="a", tone="good", values=values)]
    assert Chart(title="", unit="count", kind="lines", lines=lines, summary="").is_spiky is is_spiky
