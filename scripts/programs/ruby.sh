# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Fibers and threads that allocate on stacks of their own, a collector that moves objects, stack
# overflows in Ruby and in C, signals, children.

packages=(ruby)

prepare() {
  cat >work.rb <<'END'
require 'digest'
require 'json'
require 'zlib'

scale = ARGV[0].to_i
kept = (0...500 * scale).map { |i| 'x' * (5000 + i) }
fibers = (0...100).map { |n| Fiber.new { (0...20).each { |i| Fiber.yield Zlib.deflate("#{n} #{i} " * 300).size }; 0 } }
puts (0...20).sum { fibers.sum(&:resume) }
threads = (0...8).map { |n| Thread.new { (0...50 * scale).sum { |i| Zlib.deflate("abc#{n} #{i}" * 1000).size } } }
puts threads.sum(&:value)
table = (0...20_000 * scale).to_h { |i| ["k#{i}", i.to_s * 5] }
puts Digest::SHA256.hexdigest(JSON.generate(JSON.parse(JSON.generate(table))))

def overflow
  yield
rescue SystemStackError => e
  puts e.class
end
deep = ->(n) { deep.(n + 1) }
replacing = ->(n) { 'abc'.gsub(/b/) { replacing.(n + 1) } }
nested = (0...200_000).reduce([]) { |inner, _| [inner] }
3.times { overflow { deep.(0) }; overflow { replacing.(0) }; overflow { Marshal.dump(nested) } }
Thread.new { overflow { replacing.(0) } }.join
Fiber.new { overflow { replacing.(0) } }.resume

trap('USR1') { puts 'a signal' }
Process.kill('USR1', $$)
sleep 0.05
GC.start
children = (0...3).map { |n| fork { kept.clear; GC.start; puts Zlib.crc32('child' * 100_000); $stdout.flush; exit!(n) } }
puts children.map { |pid| Process.wait2(pid)[1].exitstatus }.inspect
puts `echo #{kept.size}`
exit 5
END
}

run() { profiled ruby work.rb "$scale"; }
