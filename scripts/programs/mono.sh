# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Code made at run time, by mono: a collector that stops eight allocating threads by signals at any
# point; null checks by SIGSEGV; a process.

packages=(mono-runtime mono-mcs)

prepare() {
  cat >Work.cs <<'END'
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;

class Work {
    static string none = null;

    static long Churn(int count) {
        var kept = new List<byte[]>();
        long sum = 0;
        for (int i = 0; i < count; i++) {
            kept.Add(new byte[i % 500]);
            if (kept.Count > 500) kept.Clear();
            IntPtr block = Marshal.AllocHGlobal(64 + i % 1000);
            Marshal.WriteByte(block, (byte)i);
            sum += Marshal.ReadByte(block);
            Marshal.FreeHGlobal(block);
            if (i % 400 == 0) GC.Collect(0);
        }
        return sum;
    }

    static int Main(string[] arguments) {
        int scale = int.Parse(arguments[0]);
        long total = 0;
        var threads = Enumerable.Range(0, 8).Select(n => new Thread(() => {
            long sum = Churn(10000 * scale);
            Interlocked.Add(ref total, sum);
        })).ToList();
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
        Console.WriteLine(total);
        int nulls = 0;
        for (int i = 0; i < 20000; i++) try { total += none.Length; } catch (NullReferenceException) { nulls++; }
        Console.WriteLine(nulls);
        var leaked = Enumerable.Range(0, 2000).Select(i => Marshal.AllocHGlobal(5000 + i)).ToList();
        Console.WriteLine(leaked.Count);
        var child = Process.Start("/bin/echo", "child");
        child.WaitForExit();
        Console.WriteLine(child.ExitCode);
        return 9;
    }
}
END
  mcs Work.cs
}

run() { profiled mono Work.exe "$scale"; }
