// Shows the values of a chart at the pointer, or at a place chosen with the arrow keys.
"use strict";
for (const svg of document.querySelectorAll("svg.chart")) {
  const series = JSON.parse(svg.dataset.series);
  const figure = svg.closest("figure");
  const places = [...new Set(series.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  let tip = null, cursor = null, at = -1;

  function nearest(line, x) {
    return line.points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
  }

  function show(x) {
    hide();
    const points = series.map((line) => nearest(line, x));
    x = points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best - x) ? point[0] : best), points[0][0]);
    cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("d", `M${x} 10V${svg.viewBox.baseVal.height - 30}`);
    svg.append(cursor);
    tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    series.forEach((line, i) => {
      const row = document.createElement("div");
      const name = series.length > 1 ? `${line.name}: ` : "";
      row.textContent = `${name}${points[i][3]} at ${points[i][2]} ${svg.dataset.x}`;
      tip.append(row);
    });
    figure.append(tip);
    const scale = svg.clientWidth / svg.viewBox.baseVal.width;
    const left = Math.min(x * scale + 24, figure.clientWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = "2.6rem";
  }

  function hide() {
    tip?.remove();
    cursor?.remove();
    tip = cursor = null;
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    at = Math.min(places.length - 1, Math.max(0, at + step));
    show(places[at]);
    event.preventDefault();
  });
}
