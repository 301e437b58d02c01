# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Memory beside the Java heap under three collectors: direct buffers, compressors that are never
# ended, pools and short threads. Meanwhile the JVM uses SIGSEGV: null checks, safepoints, guard
# pages of its stacks. Then processes.

packages=(openjdk-17-jdk-headless)

prepare() {
  cat >Work.java <<'END'
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.*;

public class Work {
    static List<Object> kept = new ArrayList<>();
    static String none;

    static int deflate(byte[] input, boolean end) {
        Deflater deflater = new Deflater(9);
        deflater.setInput(input);
        deflater.finish();
        int length = deflater.deflate(new byte[input.length + 100]);
        if (end) deflater.end(); else kept.add(deflater);
        return length;
    }

    static long task(int number) {
        CRC32 sum = new CRC32();
        for (int i = 0; i < 20; i++) {
            ByteBuffer buffer = ByteBuffer.allocateDirect(4096);
            sum.update(buffer);
            deflate(new byte[10000 + number], true);
        }
        return sum.getValue() % 1000;
    }

    static int deep(int n) { return 1 + deep(n + 1); }

    public static void main(String[] args) throws Exception {
        int scale = Integer.parseInt(args[0]);
        for (int i = 0; i < 500 * scale; i++) kept.add(ByteBuffer.allocateDirect(16 << 10));
        byte[] random = new byte[65536];
        new Random(1).nextBytes(random);
        long total = 0;
        for (int i = 0; i < 50 * scale; i++) total += deflate(random, i % 2 == 0);
        System.out.println("compressed to " + total);

        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Long>> tasks = new ArrayList<>();
        for (int i = 0; i < 50 * scale; i++) { int number = i; tasks.add(pool.submit(() -> task(number))); }
        total = 0;
        for (Future<Long> task : tasks) total += task.get();
        pool.shutdown();
        for (int i = 0; i < 50 * scale; i++) { Thread thread = new Thread(() -> deflate(new byte[100], true)); thread.start(); thread.join(); }
        System.out.println("sums " + total);

        int nulls = 0, overflows = 0;
        for (int i = 0; i < 100000; i++) try { total += none.length(); } catch (NullPointerException e) { nulls++; }
        for (int i = 0; i < 5; i++) try { deep(0); } catch (StackOverflowError e) { overflows++; }
        System.gc();
        System.out.println(nulls + " nulls, " + overflows + " overflows");
        for (int i = 0; i < 3; i++) System.out.println(new ProcessBuilder("sh", "-c", "exit " + i).start().waitFor());
        System.exit(kept.size() % 100);
    }
}
END
  javac Work.java
}

run() {
  local collector
  for collector in Serial G1 Z; do
    profiled java -XX:+Use${collector}GC -Xmx256m Work "$scale"
  done
}
