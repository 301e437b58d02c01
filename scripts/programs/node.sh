# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Buffers, compression and digests in JavaScript, in four workers and in libuv's threads; a child; a
# stack overflow.

packages=(nodejs)

prepare() {
  cat >work.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const child = require('child_process'), crypto = require('crypto'), zlib = require('zlib');

function compress(count) {
  const kept = [];
  let total = 0;
  for (let i = 0; i < count; i++) {
    total += zlib.deflateSync(Buffer.alloc(20000, i & 255)).length;
    kept.push(Buffer.allocUnsafeSlow(5000));
  }
  return total + kept.length;
}

async function main(scale) {
  const worked = [1, 2, 3, 4].map(() => new Promise((resolve, reject) =>
    new Worker(__filename, { workerData: 50 * scale }).on('message', resolve).on('error', reject)));
  console.log((await Promise.all(worked)).join(' '));
  const zipped = Array.from({ length: 50 * scale }, (_, i) => new Promise((resolve, reject) =>
    zlib.gzip(Buffer.alloc(50000, i & 255), (error, result) => error ? reject(error) : resolve(result.length))));
  console.log((await Promise.all(zipped)).reduce((a, b) => a + b));
  const digest = crypto.createHash('sha256');
  for (let i = 0; i < 1000; i++) digest.update(Buffer.alloc(1000, i & 255));
  console.log(digest.digest('hex'));
  let depth = 0;
  const deep = () => { depth++; deep(); };
  try { deep(); } catch (error) { console.log(error.constructor.name); }
  const objects = Array.from({ length: 20000 * scale }, (_, i) => ({ i, text: 'x' + i }));
  console.log(JSON.stringify(JSON.parse(JSON.stringify(objects))).length);
  console.log(child.spawnSync(process.execPath, ['-e', 'console.log(6 * 7); process.exit(3)']).status);
  process.exitCode = 7;
}

if (isMainThread) main(Number(process.argv[2])); else parentPort.postMessage(compress(workerData));
END
}

run() { profiled node work.js "$scale"; }
