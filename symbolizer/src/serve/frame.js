
"use strict";
const token = new URLSearchParams(location.search).get("token");
const withToken = (path) => (token ? `${path}?token=${encodeURIComponent(token)}` : path);
const find = (id) => document.getElementById(id);
const own = location.pathname.replace(/\/$/, "");
const id = own.split("/").pop();

find("back").href = withToken("/");
find("report").src = withToken(`${own}/report`);

/** The report keeps what is chosen in the fragment of its address, which a reload keeps. */
function refresh() {
  [shown, asked, isLoading] = [known, Date.now(), true];
  find("report").contentWindow.location.reload();
}
find("refresh").addEventListener("click", refresh);

/** The report follows the log: it is made anew once the log has grown, and not while one is made. */
let known = null;
let shown = null;
let asked = Date.now();
let isLoading = true;
find("report").addEventListener("load", ({ target }) => {
  isLoading = false;
  // A refusal is text: ask again.
  if (target.contentDocument?.contentType !== "text/html") shown = -1;
});
setInterval(() => {
  const seconds = Number(find("every").value);
  const isDue = seconds > 0 && Date.now() - asked >= seconds * 1000;
  if (!isDue || isLoading || document.hidden || known === shown) return;
  refresh();
}, 1000);

function say(text, isBad) {
  find("said").textContent = text;
  find("said").className = isBad ? "bad" : "faint";
}

for (const button of document.querySelectorAll("[data-command]")) {
  button.disabled = !token;
  if (!token) button.title = "needs the token: open the address that heapprof serve prints";
  button.addEventListener("click", async () => {
    const word = find("word").value.trim();
    const { command, word: wants } = button.dataset;
    if (wants === "needed" && word === "") return say(`${command}: write a word into the field first`, true);
    try {
      const answer = await fetch(`${own}/control`, {
        method: "POST",
        headers: { "Authorization": `Bearer ${token}`, "Content-Type": "application/x-www-form-urlencoded" },
        body: new URLSearchParams({ command: wants && word ? `${command} ${word}` : command }),
      });
      say((await answer.text()).trim(), !answer.ok);
    } catch (error) {
      say(`no answer: ${error.message}`, true);
    }
  });
}

async function about() {
  try {
    const { processes } = await (await fetch(withToken("/processes"))).json();
    const it = processes.find((process) => process.id === id);
    find("name").textContent = it ? `${it.name || it.log}, pid ${it.pid}` : "gone";
    document.title = `heapprof: ${find("name").textContent}`;
    if (it) known = it.log_bytes;
    if (shown === null) shown = known;
    const mib = (value) => `${(value / 2 ** 20).toFixed(1)} MiB`;
    const doubts = it ? [...(it.error ? [it.error] : []), ...it.faults] : [];
    find("doubts").textContent = doubts.join("; ");
    find("doubts").hidden = doubts.length === 0;
    const error = it?.in_use_error_bytes > 0 ? ` ± ${mib(1.96 * it.in_use_error_bytes)}` : "";
    find("numbers").textContent = it ? `${it.state}, ${mib(it.in_use_bytes)}${error} in use` : "";
  } catch (error) {
    say(`no answer: ${error.message}`, true);
  }
  setTimeout(about, document.hidden ? 20000 : 3000);
}
about();
