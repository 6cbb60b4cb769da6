// Formulas in LaTeX, from standard input, as HTML with its style sheet: see formulas.py.
"use strict";

async function main([folder]) {
  const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const mathjax = await require(`${folder}/node-main.js`).init({
    loader: { load: ["input/tex", "output/chtml"] },
    tex: { packages: { "[-]": ["noundefined"] } }, // what is not known is an error
    chtml: { fontURL: "mathjax", matchFontHeight: false, scale: 1.1 },
  });
  const { adaptor } = mathjax.startup;
  const html = formulas.map(([latex, display]) =>
    adaptor.outerHTML(mathjax.tex2chtml(latex, { display })),
  );
  const css = adaptor.textContent(mathjax.chtmlStylesheet());
  process.stdout.write(JSON.stringify({ html, css }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
