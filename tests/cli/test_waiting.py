from tenure.cli.waiting import ticks, watch


def test_watching_ends_with_the_first_good_look():
    looks = iter(range(10))
    assert watch(lambda: next(looks), lambda seen: seen == 2, seconds=30) == (2, True)


def test_watching_ends_at_its_deadline_with_the_last_look():
    looks = iter(range(10))
    assert watch(lambda: next(looks), lambda _: False, seconds=0) == (1, False)


def test_ticks_come_at_once_and_end():
    assert len(list(ticks(10, 0))) == 1
