"""Numbers from results: medians over rounds of what was compared within a round."""

import math
import statistics

from .contestants import BY_NAME


def ratios(rounds, name, base, what):
    return [got[name][what] / got[base][what] for got in rounds
            if got.get(name) and got.get(base) and got[base][what] > 0]


def ratio(rounds, name, base, what="cpu"):
    """The median of the rounds' ratios, or None."""
    each = ratios(rounds, name, base, what)
    return statistics.median(each) if each else None


def standard_error(rounds, name, base, what="cpu"):
    """Returns the standard error of the median of the rounds' ratios: 1.2533 standard deviations
    (for normal errors, large samples) over the root of their number. A standard deviation is the
    interquartile range over 1.349. None: fewer than 3 rounds."""
    each = ratios(rounds, name, base, what)
    if len(each) < 3:
        return None
    quarters = statistics.quantiles(each, n=4, method="inclusive")
    return 1.2533 * (quarters[2] - quarters[0]) / 1.349 / math.sqrt(len(each))


def median_of(rounds, name, what):
    each = [got[name][what] for got in rounds if got.get(name)]
    return statistics.median(each) if each else None


def more_resident(rounds, name, base, times=1.0):
    """Returns the KiB of peak RSS that a contestant has above `times` its base's: the median over
    all pairs of a round of the one and a round of the other (Hodges and Lehmann's estimate of a
    shift). It is no difference of medians: a run's peak is one of two values, by the moment at
    which jemalloc gives large blocks' pages back, and the median of a few runs is either. None:
    died."""
    ours, bases = ([got[contestant]["rss"] for got in rounds if got.get(contestant)] for contestant in (name, base))
    return statistics.median(one - times * other for one in ours for other in bases) if ours and bases else None


def geometric_mean(values):
    values = [value for value in values if value]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def added(results, name, case, what="cpu"):
    """Nanoseconds that a contestant adds to a pair, over its base; None: died."""
    base = BY_NAME[name].base
    each = [got[name][what] - got[base][what] for got in results["pairs"][case] if got.get(name) and got.get(base)]
    return statistics.median(each) if each else None


def fastest_added(results, name, case):
    """Nanoseconds of CPU time that a contestant adds to a pair, of the fastest rounds: the time
    that neighbours on a shared machine take is no cost of ours. The fastest long run and the
    fastest short run count, with recording and without. None: died."""
    rounds = results["pairs"][case]

    def slope(contestant):
        each = [got[contestant] for got in rounds if got.get(contestant)]
        return (min(run["long"] for run in each) - min(run["short"] for run in each)) * 1000 / each[0]["pairs"] if each else None

    ours, base = slope(name), slope(BY_NAME[name].base)
    return ours - base if ours is not None and base is not None else None


def fastest_start(results, name):
    """Milliseconds of elapsed time that a contestant adds to a program that does nothing, of the
    fastest rounds. None: died."""
    ours, plain = ([got[contestant]["wall"] for got in results["start"] if got.get(contestant)] for contestant in (name, "glibc"))
    return (min(ours) - min(plain)) / 1000 if ours and plain else None


def start_values(results, what="cpu"):
    """Milliseconds added to a program that does nothing, by contestant."""
    rounds = results["start"]
    values = {}
    for name in rounds[0]:
        each = [(got[name][what] - got["glibc"][what]) / 1000 for got in rounds if got.get(name) and got.get("glibc")]
        values[name] = statistics.median(each) if each else None
    return values
