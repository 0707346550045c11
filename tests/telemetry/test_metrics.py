from tenure.limits import METRIC_LABELS_MAX
from tenure.telemetry.events import Event
from tenure.telemetry.metrics import Metrics


def lines(metrics: Metrics) -> list[str]:
    return metrics.render().decode().splitlines()


def test_claims_that_were_lost_are_counted_by_rows_and_not_by_lines():
    metrics = Metrics()
    metrics.told(Event.SWEPT, {"rows": 7})
    metrics.told(Event.SWEPT, {"rows": 2})
    assert "tenure_claims_lost_total 9.0" in lines(metrics)
    assert 'tenure_events_total{event="claims lost"} 2.0' in lines(metrics)


def test_late_results_are_counted_by_whether_they_were_kept():
    metrics = Metrics()
    metrics.told(Event.CLAIM_NO_LONGER_HELD, {})
    metrics.told(Event.LATE_SUCCESS_KEPT, {})
    metrics.told(Event.LATE_SUCCESS_KEPT, {})
    assert 'tenure_late_results_total{kept="no"} 1.0' in lines(metrics)
    assert 'tenure_late_results_total{kept="yes"} 2.0' in lines(metrics)


def test_no_receiver_can_make_the_page_grow():
    metrics = Metrics()
    for number in range(METRIC_LABELS_MAX + 50):
        metrics.parked(f"reason {number}")
    found = [each for each in lines(metrics) if "parked_total{" in each]
    assert len(found) == METRIC_LABELS_MAX + 1
    assert 'tenure_parked_total{reason="other"} 50.0' in found


def test_what_follows_a_colon_in_a_reason_is_left_out():
    metrics = Metrics()
    metrics.parked("undecodable: byte 7 of message msg_1")
    assert 'tenure_parked_total{reason="undecodable"} 1.0' in lines(metrics)


def test_a_gauge_forgets_labels_that_are_no_more():
    metrics = Metrics()
    metrics.gauge("x", "X.", [({"a": "1"}, 5), ({"a": "2"}, 6)], ("a",))
    metrics.gauge("x", "X.", [({"a": "2"}, 7)], ("a",))
    found = [each for each in lines(metrics) if each.startswith("tenure_x")]
    assert found == ['tenure_x{a="2"} 7.0']
