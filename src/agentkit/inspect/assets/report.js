// Draws the plots of a report. Reads the element `plots` (JSON of numbers, and of texts that go into text nodes only),
// asks for nothing and changes nothing but the elements marked `data-plot`.
(() => {
  "use strict";
  const conversations = JSON.parse(document.getElementById("plots").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const hosts = [...document.querySelectorAll("[data-plot]")];
  const drawn = new Map();
  const EAGER = 12; // more plots than this are drawn when they come near the screen
  const HEIGHT = 260;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  const count = (n) => (n == null ? "–" : Math.round(n).toLocaleString("en-US"));
  const short = (n) => {
    for (const [size, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(n) >= size) return +(n / size).toPrecision(3) + unit;
    }
    return String(+n.toPrecision(3));
  };
  const usd = (n) => (n == null ? "unknown" : "$" + (n >= 0.1 || n === 0 ? n.toFixed(2) : n.toPrecision(2)));

  const usdTick = (n) => (n >= 1000 ? "$" + short(n) : n >= 10 ? "$" + +n.toFixed(2) : usd(n));

  const axes = (format) => {
    const line = { stroke: colour("rule"), width: 1 };
    const common = { stroke: colour("muted"), font: "12px system-ui, sans-serif", ticks: { show: false } };
    return [
      { ...common, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5], space: 44, size: 30 },
      { ...common, grid: line, values: (_, ticks) => ticks.map(format), space: 36, size: 52 },
    ];
  };

  // Away from the pointer the legend tells of the last response.
  const at = (data, i) => i ?? data.number.length - 1;
  const numbered = (data) => ({
    label: "Response",
    value: (_, __, ___, i) => data.number[at(data, i)] + (data.time[at(data, i)] ? " · " + data.time[at(data, i)] : ""),
  });

  // A level for each response, as wide as its bar's place; null leaves a gap.
  const levels = (u, series, from, to) => {
    const stroke = new Path2D();
    const fill = new Path2D();
    const floor = u.valToPos(0, "y", true);
    let open = false;
    for (let i = from; i <= to; i++) {
      const value = u.data[series][i];
      if (value == null) { open = false; continue; }
      const y = u.valToPos(value, "y", true);
      const left = u.valToPos(u.data[0][i] - 0.5, "x", true);
      const right = u.valToPos(u.data[0][i] + 0.5, "x", true);
      if (open) stroke.lineTo(left, y); else stroke.moveTo(left, y);
      stroke.lineTo(right, y);
      fill.rect(left, y, right - left, floor - y);
      open = true;
    }
    return { stroke, fill, clip: null, band: null, gaps: null, flags: 1 };
  };

  // Layers stand on one another: each is drawn from zero up to its own top, the highest first, in opaque colours.
  const stacked = (data, layers, lines) => {
    const bars = uPlot.paths.bars({ size: [data.number.length > 90 ? 1 : 0.8, 44], align: 0 });
    const below = new Array(data.number.length).fill(0);
    const tops = layers.map((layer) => layer.values.map((v, i) => (v == null ? null : (below[i] += v))));
    const series = [numbered(data)];
    const columns = [data.number];
    for (let k = layers.length - 1; k >= 0; k--) {
      const layer = layers[k];
      series.push({
        label: layer.label, fill: colour(layer.colour), stroke: colour(layer.colour), width: 0, paths: bars,
        points: { show: false }, value: (_, __, ___, i) => count(layer.values[at(data, i)]),
      });
      columns.push(tops[k]);
    }
    for (const line of lines) {
      series.push({
        label: line.label, stroke: colour(line.colour), width: 1.5, paths: levels, points: { show: false },
        value: (_, __, ___, i) => count(line.values[at(data, i)]),
      });
      columns.push(line.values);
    }
    return { series, columns };
  };

  // Vertical marks where a compaction was, and a level line for the model's window when the context came near it.
  const marks = (data) => (u) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.strokeStyle = ctx.fillStyle = colour("text");
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 4 * ratio]);
    const line = (x0, y0, x1, y1) => { ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke(); };
    data.compacted.forEach((folded, i) => {
      if (!folded) return;
      const x = Math.round(u.valToPos(data.number[i] - 0.5, "x", true));
      line(x, bbox.top, x, bbox.top + bbox.height);
    });
    if (data.window && data.window <= u.scales.y.max) {
      const y = Math.round(u.valToPos(data.window, "y", true));
      line(bbox.left, y, bbox.left + bbox.width, y);
      ctx.textAlign = "left";
      ctx.fillText("window " + short(data.window), bbox.left + 6 * ratio, y - 5 * ratio);
    }
    ctx.restore();
  };

  const KINDS = {
    context(data) {
      const layers = [
        { label: "Not in the file", values: data.unseen, colour: "unseen" },
        { label: "Frozen", values: data.frozen, colour: "frozen" },
        { label: "Summary", values: data.summary, colour: "summary" },
        { label: "Tail", values: data.tail, colour: "tail" },
      ].filter((layer) => layer.values.some((v) => v > 0));
      const lines = data.reported.some((v) => v != null)
        ? [{ label: "Reported", values: data.reported, colour: "text" }] : [];
      return { ...stacked(data, layers, lines), format: short, hooks: { draw: [marks(data)] } };
    },
    usage(data) {
      const layers = [
        { label: "Read from cache", values: data.read, colour: "read" },
        { label: "Written to cache", values: data.write, colour: "write" },
        { label: "Fresh", values: data.fresh, colour: "fresh" },
        { label: "Output", values: data.output, colour: "output" },
      ].filter((layer) => layer.values.some((v) => v > 0));
      return { ...stacked(data, layers, []), format: short };
    },
    cost(data) {
      return {
        series: [numbered(data), {
          label: "Cost so far", stroke: colour("cost"), fill: colour("cost-area"), width: 2,
          paths: levels, points: { show: false }, value: (_, __, ___, i) => usd(data.cost[at(data, i)]),
        }],
        columns: [data.number, data.cost],
        format: usdTick,
      };
    },
  };

  // Costs so far of the same requests, one line for each way to send them.
  KINDS.compare = (data) => {
    const lines = [
      { label: "Without a cache", values: data.cache.uncached, colour: "fresh" },
      { label: "As recorded", values: data.cache.recorded, colour: "text" },
      { label: "With agentkit's layout", values: data.cache.library, colour: "tail", dash: [7, 5] },
    ].filter((line) => line.values.some((v) => v != null));
    return {
      series: [numbered(data), ...lines.map((line) => ({
        label: line.label, stroke: colour(line.colour), width: 2, dash: line.dash, spanGaps: true,
        points: { show: false }, value: (_, __, ___, i) => usd(line.values[at(data, i)]),
      }))],
      columns: [data.number, ...lines.map((line) => line.values)],
      format: usdTick,
    };
  };
  KINDS.breaks = (data) => {
    const lost = [{ label: "Paid again", values: data.cache.lost, colour: "fresh" }];
    return { ...stacked(data, lost, []), format: short };
  };

  const draw = (host) => {
    drawn.get(host)?.destroy();
    const data = conversations[Number(host.dataset.conversation)];
    const { series, columns, format, hooks } = KINDS[host.dataset.plot](data);
    const options = {
      width: Math.max(host.clientWidth, 200), height: HEIGHT, series, hooks, axes: axes(format),
      scales: {
        x: { time: false, range: () => [0.5, Math.max(data.number.length, 1) + 0.5] },
        y: { range: (_, __, high) => [0, (high || 1) * 1.06] },
      },
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      legend: { live: true },
      padding: [10, 18, 0, 0],
    };
    drawn.set(host, new uPlot(options, columns, host));
  };

  const drawOnce = (host) => { if (!drawn.has(host) && host.clientWidth) draw(host); };
  if (hosts.length > EAGER) {
    const near = new IntersectionObserver(
      (entries) => entries.forEach((entry) => { if (entry.isIntersecting) drawOnce(entry.target); }),
      { rootMargin: "600px" },
    );
    hosts.forEach((host) => near.observe(host));
  } else {
    hosts.forEach(drawOnce);
  }
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = drawn.get(target);
      if (plot && target.clientWidth && plot.width !== target.clientWidth) {
        plot.setSize({ width: target.clientWidth, height: HEIGHT });
      } else if (!plot && hosts.length <= EAGER) {
        drawOnce(target);
      }
    }
  });
  hosts.forEach((host) => resized.observe(host));
  dark.addEventListener("change", () => [...drawn.keys()].forEach(draw));
  addEventListener("beforeprint", () => hosts.forEach(drawOnce));
})();
