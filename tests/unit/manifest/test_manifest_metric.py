"""The laws of a metric record."""

import math
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dataaudit.manifest.metric import METHODS, STATUSES, Metric, Scope, count, ratio, rounded
from dataaudit.manifest.metric_rows import MetricRows, metrics_table

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def record(**fields):
    """Return an exact record, some of its fields changed."""
    return Metric(**{"metric": "m", "stat": "s", "unit": "ratio", "value": 0.5, **fields})


class TestRounding:
    @given(FINITE)
    def test_keeps_twelve_significant_digits(self, value):
        """The result is the float nearest to the value's twelve leading decimal digits."""
        assume(value != int(value))
        exact = Decimal(value)
        digits = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 11))
        assert rounded(value) == float(digits)

    @given(st.integers(-(2**53), 2**53))
    def test_whole_numbers_stay_exact(self, value):
        assert rounded(float(value)) == value

    @given(FINITE)
    def test_rounding_twice_changes_nothing(self, value):
        assert rounded(rounded(value)) == rounded(value)

    @given(st.floats(0.001, 1000), st.integers(-4, 4))
    def test_the_last_bits_do_not_count(self, value, steps):
        """A value that is not at the edge of a rounding step ignores differences in its last bits."""
        nearby = value
        for _ in range(abs(steps)):
            nearby = math.nextafter(nearby, math.copysign(math.inf, steps))
        assume(f"{value:.15g}"[-2:] not in {"50", "49", "51"})
        exact = Decimal(value)
        rest = exact.scaleb(11 - exact.adjusted()) % 1
        assume(abs(rest - Decimal("0.5")) > Decimal("0.01"))
        assume(value != int(value) and nearby != int(nearby))
        assert rounded(nearby) == rounded(value)

    def test_zero_has_no_sign(self):
        assert math.copysign(1, rounded(-0.0)) == 1

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_no_number_is_refused(self, value):
        with pytest.raises(ValueError, match="finite"):
            rounded(value)
        with pytest.raises(ValueError, match=r"finite|interval"):
            record(value=value)
        for name in ("low", "high"):
            bounds = {"low": 0.0, "high": 1.0, "confidence": 0.9} | {name: value}
            with pytest.raises(ValueError, match=r"finite|interval"):
                record(method="sampled", **bounds)


NUMBER = st.none() | st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


class TestRecord:
    @given(
        value=NUMBER,
        low=NUMBER,
        high=NUMBER,
        confidence=NUMBER,
        method=st.sampled_from(METHODS),
        status=st.sampled_from(STATUSES),
        reason=st.sampled_from(["", "why"]),
    )
    def test_is_made_exactly_when_it_obeys_the_laws(self, value, low, high, confidence, method, status, reason):
        """A value exactly with status ok, an interval around it exactly when inexact, else a reason."""
        bounds = (low, high, confidence)
        if status != "ok":
            lawful = value is None and reason != "" and bounds == (None, None, None)
        elif method == "exact":
            lawful = value is not None and bounds == (None, None, None)
        else:
            lawful = None not in (value, *bounds) and low <= value <= high and confidence > 0
        fields = {
            "value": value,
            "low": low,
            "high": high,
            "confidence": confidence,
            "method": method,
            "status": status,
            "reason": reason,
        }
        if lawful:
            assert record(**fields).status == status
        else:
            with pytest.raises(ValueError, match=r"^m\.s: "):
                record(**fields)

    @pytest.mark.parametrize("fields", [{"method": "guessed"}, {"status": "fine"}, {"n": -1}, {"denominator": -1}])
    def test_unknown_words_and_negative_counts_are_refused(self, fields):
        with pytest.raises(ValueError, match=r"^m"):
            record(**fields)

    def test_value_and_bounds_are_rounded(self):
        made = record(value=1 / 3, low=1 / 7, high=2 / 3, confidence=0.95, method="sampled")
        assert (made.value, made.low, made.high) == (0.333333333333, 0.142857142857, 0.666666666667)


class TestRatioAndCount:
    @given(st.integers(0, 2**53 - 1), st.integers(1, 2**53 - 1))
    def test_ratio_is_the_rounded_quotient(self, numerator, denominator):
        made = ratio("m", "s", numerator, denominator, scope=Scope(), unit="ratio", version="2")
        assert made.value == rounded(numerator / denominator)
        assert (made.denominator, made.n, made.method, made.status, made.version) == (
            denominator,
            denominator,
            "exact",
            "ok",
            "2",
        )

    @given(st.integers(0, 5))
    def test_denominator_of_zero_is_not_evaluated(self, numerator):
        made = ratio("m", "s", numerator, 0, scope=Scope(), unit="ratio", version="1")
        assert (made.value, made.status, made.reason) == (None, "not_evaluated", "empty_denominator")

    @given(st.integers(0, 2**53))
    def test_count_is_exact(self, value):
        assert count("m", "s", value, scope=Scope(), unit="documents", n=value, version="1").value == value


SCOPES = st.builds(
    Scope,
    split=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    source=st.none() | st.just("wïki"),
    language=st.none() | st.just("de"),
    shard=st.none() | st.integers(0, 9),
    set=st.none() | st.just("gsm8k"),
    entity=st.none() | st.just("email"),
    rule=st.none() | st.just("c4"),
)


class TestTable:
    @given(st.lists(SCOPES, max_size=4, unique=True))
    def test_records_survive_the_table(self, scopes):
        records = [record(scope=scope) for scope in scopes]
        assert list(MetricRows.of_batches(metrics_table(records).to_batches())) == records

    @given(SCOPES)
    def test_scope_shows_only_what_is_given(self, scope):
        assert None not in scope.as_dict().values()
        assert Scope(**scope.as_dict()) == scope

    def test_two_records_for_one_thing_are_refused(self):
        with pytest.raises(ValueError, match="two records"):
            metrics_table([record(), record(value=0.25)])
