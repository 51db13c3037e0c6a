(function () {
  "use strict";
  var root = document.documentElement, button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", function () {
    var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  function told(value, unit) {
    if (unit === "share") return (value * 100).toFixed(0) + " %";
    if (unit === "bytes") return (value / 1048576).toFixed(2) + " MiB";
    return value < 10 ? value.toFixed(2) : value.toFixed(0);
  }
  document.querySelectorAll(".curve svg").forEach(function (svg) {
    var out = svg.parentNode.querySelector("output"), height = svg.viewBox.baseVal.height, width = svg.viewBox.baseVal.width;
    var curves = Array.from(svg.querySelectorAll("path")).map(function (path) {
      var steps = Array.from(path.getAttribute("d").matchAll(/H([\d.]+)V([\d.]+)/g)).map(function (m) { return [+m[1], +m[2]]; });
      return { side: path.dataset.side, steps: steps };
    });
    svg.addEventListener("pointermove", function (event) {
      var box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
      var parts = curves.map(function (curve) {
        var y = height;
        curve.steps.forEach(function (step) { if (step[0] <= x) y = step[1]; });
        var value = (height - y) / height * +svg.dataset.top;
        return (curves.length > 1 ? curve.side + " " : "") + told(value, svg.dataset.unit);
      });
      out.textContent = "at " + (x / width * +svg.dataset.end).toPrecision(4) + " s: " + parts.join(", ");
    });
    svg.addEventListener("pointerleave", function () { out.textContent = ""; });
  });
})();
