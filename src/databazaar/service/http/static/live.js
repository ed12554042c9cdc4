"use strict";
// A job's live page: rounds and states as they come, drawn as curves, told as bars and rows of a table.
const live = document.getElementById("live");
const decimals = Number(live.dataset.decimals);
const money = (minor) => (minor / 10 ** decimals).toLocaleString("en", { minimumFractionDigits: decimals });
const figure = (value) => (Number.isFinite(value) ? Number(value.toPrecision(4)).toString().replace("-", "−") : "–");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const byId = (id) => document.getElementById(id);
const rounds = [], utilities = [], spends = [], committed = [], asked = new Map();
const MOST_ROWS = 50;
let best;
const over = "over" in live.dataset;

function curve(place, written, ...lines) {
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const space = byId(place);
  const plot = new uPlot({
    width: space.clientWidth, height: 230, legend: { live: false, show: lines.length > 1 }, cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false } },
    axes: [{ ...axis, values: (_, all) => all.map((one) => (Number.isInteger(one) ? one : "")) }, { ...axis, size: 64, values: (_, all) => all.map(written) }],
    series: [{ label: "Round" }, ...lines.map((line) => ({ width: 2, points: { show: false }, ...line }))],
  }, [[], ...lines.map(() => [])], space);
  new ResizeObserver(() => plot.setSize({ width: space.clientWidth, height: 230 })).observe(space);
  return plot;
}

const utility = curve("utility-curve", figure, { label: "Utility", stroke: colour("--accent") });
const spend = curve("spend-curve", money,
  { label: "Paid", stroke: colour("--good"), fill: colour("--good-soft") },
  { label: "Paid and held back", stroke: colour("--muted"), dash: [5, 4] });

function bars() {
  const most = Math.max(1, ...asked.values());
  for (const line of byId("asked").children) {
    const times = asked.get(line.dataset.offer) ?? 0;
    line.querySelector("rect").setAttribute("width", `${(100 * times) / most}%`);
    line.querySelector(".times").textContent = `${times} ×`;
  }
}

function tell(last) {
  if (over) return;
  byId("now-round").textContent = last.round.toLocaleString("en");
  byId("now-spent").textContent = money(last.asked);
  const held = last.asked - last.spent;
  byId("now-held").textContent = held > 0 ? `; ${money(held)} of it is held back` : "";
  byId("now-utility").textContent = figure(last.utility);
  if (best) byId("now-best").textContent = `the best: ${figure(best.utility)} after round ${best.round.toLocaleString("en")}`;
}

function row(round) {
  const line = document.createElement("tr");
  const cells = [round.round, figure(round.utility), money(round.asked), (round.drawn ?? round.paid).length, round.flagged?.length ?? 0];
  cells.forEach((words, place) => {
    const cell = document.createElement(place ? "td" : "th");
    if (!place) { cell.scope = "row"; cell.className = "text"; }
    cell.textContent = words;
    line.append(cell);
  });
  return line;
}

function take(news) {
  const fresh = news.filter((one) => !rounds.length || one.round > rounds.at(-1));
  if (!fresh.length) return;
  const table = byId("rounds-body");
  if (!rounds.length) table.replaceChildren();
  for (const one of fresh) {
    rounds.push(one.round); utilities.push(one.utility); spends.push(one.spent); committed.push(one.asked);
    if (Number.isFinite(one.utility) && !(best && best.utility >= one.utility)) best = one;
    for (const offer of one.drawn ?? one.paid) asked.set(offer, (asked.get(offer) ?? 0) + 1);
  }
  for (const one of fresh.slice(-MOST_ROWS)) table.prepend(row(one));
  while (table.rows.length > MOST_ROWS) table.lastElementChild.remove();
  utility.setData([rounds, utilities]);
  spend.setData([rounds, spends, committed]);
  bars();
  tell(fresh.at(-1));
  live.dataset.rounds = String(rounds.length);
}

const connection = byId("connection");
let source, again;
function connect() {
  source = new EventSource(live.dataset.events);
  source.addEventListener("open", () => { connection.textContent = over ? "The run is over." : "Live."; live.dataset.connected = "yes"; });
  source.addEventListener("rounds", (event) => take(JSON.parse(event.data).rounds));
  source.addEventListener("state", (event) => {
    const { state } = JSON.parse(event.data);
    if (state !== live.dataset.state) location.reload();
    else if (over) source.close();
  });
  source.addEventListener("error", () => {
    live.dataset.connected = "no";
    if (over) return source.close();
    connection.textContent = "The connection was lost; trying again. The job goes on meanwhile.";
    // A browser reconnects by itself, with the id of the last event. It gives up where a proxy answered with an error.
    if (source.readyState === EventSource.CLOSED) { clearTimeout(again); again = setTimeout(connect, 3000); }
  });
}
connect();
addEventListener("pagehide", () => source.close());
addEventListener("pageshow", (shown) => { if (shown.persisted) connect(); });
