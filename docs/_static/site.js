// The theme scrolls the sidebar to its top on every page: bring the current entry into view.
document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".bd-sidebar-primary");
  const current = sidebar && Array.from(sidebar.querySelectorAll("li.current > a")).pop();
  if (current) {
    const top = current.getBoundingClientRect().top - sidebar.getBoundingClientRect().top;
    sidebar.scrollTop += Math.max(0, top - sidebar.clientHeight / 2);
  }
  // Names break after their separators, not inside a word.
  const names = "td code .pre, th code .pre, .bd-sidebar-secondary .pre";
  for (const name of document.querySelectorAll(names)) {
    const isShort = /^(-[-\w]{1,20}|[a-z]{1,12})$/.test(name.textContent); // an option or a word
    if (isShort) name.style.whiteSpace = "nowrap";
    const parts = name.textContent.split(/(?<=[_.(,/=])(?=\w)|(?<=[a-z])(?=[A-Z][a-z])/);
    const [first, ...others] = parts; // no break after the name, where a comma may stand
    name.replaceChildren(first, ...others.flatMap((part) => [document.createElement("wbr"), part]));
  }
});
