"use strict";
(() => {
  const root = document.documentElement;

  // Theme: what the system prefers, then light, then dark.
  const themes = ["auto", "light", "dark"];
  const toggle = document.getElementById("theme");
  toggle.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    toggle.textContent = "theme: " + next;
  });

  // Tables: a click on a heading sorts by its column, a second one the other way round.
  const units = { k: 1024, m: 1048576, kib: 1024, mib: 1048576, gib: 1073741824, tib: 1099511627776, ms: 0.001, min: 60 };
  const amount = (text) => {
    const match = /^([-+]?\d[\d ]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z]*)/i.exec(text.replace(/\u2212/g, "-").trim());
    return match ? Number(match[1].replace(/ /g, "")) * (units[match[2].toLowerCase()] || 1) : NaN;
  };
  const absent = (text) => text === "" || text === "-" || text === "\u2013";
  for (const heading of document.querySelectorAll("table.sortable th")) {
    heading.firstElementChild.addEventListener("click", () => {
      const table = heading.closest("table");
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const other of heading.parentElement.children) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = Array.from(table.tBodies[0].rows, (row) => {
        const text = row.cells[heading.cellIndex].textContent;
        return { row, text, value: amount(text) };
      });
      const numeric = rows.every((entry) => absent(entry.text) || !Number.isNaN(entry.value));
      rows.sort((a, b) => {
        if (absent(a.text) || absent(b.text)) return absent(a.text) - absent(b.text);
        const order = numeric ? a.value - b.value : a.text.localeCompare(b.text, "en", { numeric: true });
        return falling ? -order : order;
      });
      table.tBodies[0].append(...rows.map((entry) => entry.row));
    });
  }

  // Figures: values under the pointer, or with the arrow keys.
  const shape = (svg, tag) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    element.setAttribute("pointer-events", "none");
    element.style.display = "none";
    svg.append(element);
    return element;
  };
  const place = (element, attributes) => {
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    element.style.display = "";
  };
  const line = (tip, color, name, value) => {
    const row = document.createElement("div");
    const [dot, label, number] = ["i", "span", "em"].map((tag) => document.createElement(tag));
    if (color) dot.style.background = color;
    label.textContent = name;
    number.textContent = value;
    row.append(dot, label, number);
    tip.append(row);
  };

  const curves = (svg, data) => {
    const cursor = shape(svg, "line");
    cursor.style.stroke = "var(--ink)";
    const dots = data.series.map((series) => {
      const dot = shape(svg, "circle");
      dot.style.fill = `var(--c${series.color})`;
      return dot;
    });
    const stops = Array.from(new Set(data.series.flatMap((series) => series.points.map((point) => point.at[0]))));
    stops.sort((a, b) => a - b);
    const nearest = (points, x) => points.reduce((a, b) => (Math.abs(b.at[0] - x) < Math.abs(a.at[0] - x) ? b : a));
    return {
      columns: stops.length,
      rows: 1,
      find: (x) => {
        const stop = stops.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
        return { column: stops.indexOf(stop), row: 0 };
      },
      show: (tip, spot) => {
        const x = stops[spot.column];
        place(cursor, { x1: x, x2: x, y1: data.area.top, y2: data.area.top + data.area.height });
        let titled = false;
        data.series.forEach((series, index) => {
          const point = nearest(series.points, x);
          dots[index].style.display = "none";
          if (Math.abs(point.at[0] - x) > 0.01) return;
          if (!titled) tip.append(Object.assign(document.createElement("b"), { textContent: `${data.x}: ${point.x}` }));
          titled = true;
          place(dots[index], { cx: point.at[0], cy: point.at[1], r: 5 });
          line(tip, `var(--c${series.color})`, series.name || data.y, point.value);
        });
        return [x, data.area.top + 20];
      },
      hide: () => [cursor, ...dots].forEach((element) => (element.style.display = "none")),
    };
  };

  const heatMap = (svg, data) => {
    const frame = shape(svg, "rect");
    frame.style.fill = "none";
    frame.style.stroke = "var(--ink)";
    frame.setAttribute("stroke-width", 2);
    const width = data.area.width / data.columns.length;
    const height = data.area.height / data.rows.length;
    const within = (value, count) => Math.min(Math.max(Math.floor(value), 0), count - 1);
    return {
      columns: data.columns.length,
      rows: data.rows.length,
      find: (x, y) => ({
        column: within((x - data.area.left) / width, data.columns.length),
        row: within((y - data.area.top) / height, data.rows.length),
      }),
      show: (tip, spot) => {
        const [left, top] = [data.area.left + spot.column * width, data.area.top + spot.row * height];
        place(frame, { x: left, y: top, width, height });
        line(tip, "", data.x, data.columns[spot.column]);
        line(tip, "", data.y, data.rows[spot.row]);
        line(tip, "", data.value, data.cells[spot.row][spot.column]);
        return [left + width / 2, top + height / 2];
      },
      hide: () => (frame.style.display = "none"),
    };
  };

  for (const figure of document.querySelectorAll("figure[tabindex]")) {
    const svg = figure.querySelector("svg");
    const data = JSON.parse(figure.querySelector("script").textContent);
    const chart = data.kind === "curves" ? curves(svg, data) : heatMap(svg, data);
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    tip.hidden = true;
    figure.append(tip);
    let spot = null;
    const show = (next) => {
      spot = next;
      tip.replaceChildren();
      const [x, y] = chart.show(tip, spot);
      tip.hidden = false;
      // Beside the place, on whichever side has room.
      const frame = figure.getBoundingClientRect();
      const drawing = svg.getBoundingClientRect();
      const scale = drawing.width / svg.viewBox.baseVal.width;
      const [left, top] = [drawing.left - frame.left + x * scale, drawing.top - frame.top + y * scale];
      const beyond = left + 14 + tip.offsetWidth > frame.width;
      tip.style.left = Math.max(0, beyond ? left - 14 - tip.offsetWidth : left + 14) + "px";
      tip.style.top = Math.max(0, Math.min(top, frame.height - tip.offsetHeight - 4)) + "px";
    };
    const hide = () => {
      spot = null;
      tip.hidden = true;
      chart.hide();
    };
    svg.addEventListener("pointermove", (event) => {
      const drawing = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / drawing.width;
      const [x, y] = [(event.clientX - drawing.left) * scale, (event.clientY - drawing.top) * scale];
      const { left, top, width, height } = data.area;
      const outside = x < left - 8 || x > left + width + 8 || y < top - 8 || y > top + height + 8;
      if (outside) hide();
      else show(chart.find(x, y));
    });
    svg.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      const from = spot || { column: step[0] < 0 ? chart.columns : step[0] > 0 ? -1 : 0, row: 0 };
      const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
      show({ column: within(from.column + step[0], chart.columns), row: within(from.row + step[1], chart.rows) });
    });
  }

  document.getElementById("download").addEventListener("click", () => {
    const text = document.getElementById("result").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "result.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  document.getElementById("raw").addEventListener("toggle", (event) => {
    const shown = event.target.querySelector("pre");
    if (event.target.open && !shown.textContent) shown.textContent = document.getElementById("result").textContent;
  });
})();
