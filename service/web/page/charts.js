// How is a chart drawn? By ECharts, which is loaded when the first one is, in the colours of the style sheet.

const LIBRARY = "/web/vendor/echarts.common.min.js";

let loading = null;

function loaded() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = LIBRARY;
    script.onload = () => resolve(globalThis.echarts);
    script.onerror = () => reject(new Error("the charts could not be loaded"));
    document.head.append(script);
  });
  return loading;
}

/** A colour of the style sheet by its name. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** What all charts share. */
function looks() {
  const text = { color: colour("quiet"), fontFamily: getComputedStyle(document.body).fontFamily };
  return {
    animation: false,
    textStyle: text,
    grid: { left: 8, right: 24, top: 40, bottom: 8, containLabel: true },
    tooltip: {
      renderMode: "richText",
      confine: true,
      backgroundColor: colour("panel"),
      borderColor: colour("line"),
      textStyle: { color: colour("text"), fontSize: 13 },
    },
  };
}

/** An axis in the colours of the style sheet. */
export const axis = (given) => ({
  nameTextStyle: { color: colour("quiet") },
  axisLine: { lineStyle: { color: colour("line") } },
  axisLabel: { color: colour("quiet") },
  splitLine: { lineStyle: { color: colour("line") } },
  ...given,
});

/** Draw into a place: options() is asked again when light turns dark; said is what the chart shows, in words. */
export async function draw(place, said, options, picked = () => {}) {
  const library = await loaded();
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", said);
  const chart = library.getInstanceByDom(place) ?? library.init(place, null, { renderer: "canvas" });
  if (!place.options) {
    new ResizeObserver(() => chart.resize()).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => place.options());
  }
  place.options = () => chart.setOption({ ...looks(), ...options() }, { notMerge: true });
  chart.off("click");
  chart.on("click", ({ data }) => picked(data));
  place.options();
}
