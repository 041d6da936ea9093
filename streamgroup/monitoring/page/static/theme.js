// Runs before the page is drawn, so that a dark page never flashes white.
(() => {
  const read = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  apply(read());
  window.nextTheme = () => {
    const next = { light: "dark", dark: "" }[read() ?? ""] ?? "light";
    try {
      if (next) localStorage.setItem("theme", next);
      else localStorage.removeItem("theme");
    } catch { /* a browser without storage forgets it */ }
    apply(next);
    return next || "system";
  };
})();
