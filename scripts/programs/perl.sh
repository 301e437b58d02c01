# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Regular expressions, hashes and arrays, a forked child.

packages=(perl)

prepare() {
  cat >work.pl <<'END'
use strict; use warnings;
my (%count, %lists);
for my $i (1 .. $ARGV[0]) {
    my $line = join ' ', map { sprintf 'w%03d', ($i * $_ * 7919) % 613 } 1 .. 8;
    $count{$_}++ for $line =~ /\bw(\d+)\b/g;
    push @{ $lists{ length($line) . ':' . $i % 101 } }, [ split ' ', $line ];
}
my @top = (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 9];
print "$_ $count{$_}\n" for @top;
print scalar(keys %lists), ' ', join('|', map { scalar @$_ } @lists{ (sort keys %lists)[0 .. 4] }), "\n";
my $child = fork // die; if (!$child) { print "child\n"; exit 0 } waitpid $child, 0;
exit 5;
END
}

run() { profiled perl work.pl $((10000 * scale)); }
