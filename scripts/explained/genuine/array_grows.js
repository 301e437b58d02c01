// A server that keeps the body of every request in an array.
//
// expect: leak *; growing block|churn|nothing *
const seconds = Number(process.argv[2] || 1e9);
const bodies = [];
const timer = setInterval(() => {
  for (let i = 0; i < 3; i++) bodies.push(Buffer.alloc(12000, 1));
}, 60);
setTimeout(() => {
  clearInterval(timer);
  console.log(bodies.length);
}, Math.min(seconds * 1000, 2 ** 31 - 1));
