"""What a package and a name may be."""

import pytest

from tenure.naming.coordinates import Coordinate, check_name, parse_coordinate


@pytest.mark.parametrize(
    ("text", "package", "name"),
    [
        ("billing:report", "billing", "report"),
        ("a.b-c_d9:_x", "a.b-c_d9", "_x"),
        ("a:b" + "c" * 99, "a", "b" + "c" * 99),
    ],
)
def test_a_coordinate_is_read_and_written(text: str, package: str, name: str):
    found = parse_coordinate(text)
    assert found == Coordinate(package=package, name=name)
    assert str(found) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("report", "names no package"),
        ("Billing:report", "package 'Billing'"),
        ("billing:Report", "name 'Report'"),
        ("billing:", "name ''"),
        ("a:b:c", "name 'b:c'"),
        ("a..b:c", "package 'a..b'"),
        ("a:" + "b" * 101, "at most 100"),
        ("env:x", "Tenure's own word"),
        ("builtin:x", "Tenure's own word"),
    ],
)
def test_what_is_no_coordinate_is_refused_with_the_reason(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        parse_coordinate(text)


def test_a_bare_name_takes_the_package_that_is_given():
    assert str(parse_coordinate("report", package="billing")) == "billing:report"
    assert check_name("report") == "report"
