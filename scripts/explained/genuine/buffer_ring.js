// The last bodies in a ring; the collector frees those that were replaced.
//
// expect: cache|periodic|churn|one-time|nothing *
const seconds = Number(process.argv[2] || 1e9);
const bodies = new Array(250);
let next = 0;
const timer = setInterval(() => {
  for (let i = 0; i < 18; i++) bodies[next++ % bodies.length] = Buffer.alloc(40000, 1);
}, 60);
setTimeout(() => {
  clearInterval(timer);
  console.log(next);
}, Math.min(seconds * 1000, 2 ** 31 - 1));
