import re

import pytest

from tenure import errors
from tenure.errors import (
    Broken,
    Draining,
    RateLimited,
    Refused,
    TenureError,
    Unavailable,
    ValidationFailed,
    ValidationItem,
    leaves,
)

LEAVES = tuple(leaves())


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_a_leaf_names_its_code_status_and_exit_code_itself(leaf: type[TenureError]):
    assert {"code", "status", "exit_code"} <= vars(leaf).keys()
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", leaf.code)
    assert 400 <= leaf.status <= 599
    assert 1 <= leaf.exit_code <= 125


def test_no_two_leaves_share_a_code():
    codes = [leaf.code for leaf in LEAVES]
    assert len(codes) == len(set(codes))


def test_every_leaf_is_refused_unavailable_or_broken():
    for leaf in LEAVES:
        assert sum(issubclass(leaf, k) for k in (Refused, Unavailable, Broken)) == 1


def test_the_drawn_tree_names_every_leaf():
    drawn = set(re.findall(r"[A-Z]\w+", errors.__doc__ or ""))
    assert {leaf.__name__ for leaf in LEAVES} <= drawn


def test_every_leaf_is_exported():
    assert {leaf.__name__ for leaf in LEAVES} <= set(errors.__all__)


def test_only_what_the_world_did_answers_503():
    for leaf in LEAVES:
        assert (leaf.status == 503) == issubclass(leaf, Unavailable)


def test_a_validation_error_says_where_and_what():
    error = ValidationFailed.at("body", "headers", 0, msg="is reserved", type="header")
    assert str(error) == "body.headers.0: is reserved"
    assert error.items[0].as_json() == {
        "loc": ["body", "headers", 0],
        "msg": "is reserved",
        "type": "header",
    }


def test_a_validation_error_lists_all_faults():
    error = ValidationFailed(
        [
            ValidationItem(loc=("body", "a"), msg="one", type="x"),
            ValidationItem(loc=("body", "b"), msg="two", type="x"),
        ]
    )
    assert str(error) == "body.a: one; body.b: two"


def test_what_may_be_retried_says_when():
    assert Draining("stopping", retry_after=3).retry_after == 3
    assert RateLimited("slow down", retry_after=0.5).retry_after == 0.5


def test_details_ride_beside_the_message():
    error = errors.NotFound("no application app_1", application="app_1")
    assert str(error) == error.message == "no application app_1"
    assert error.detail == {"application": "app_1"}
