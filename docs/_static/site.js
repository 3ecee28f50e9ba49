// The theme scrolls the sidebar to its top on every page: bring the current entry into view.
document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".bd-sidebar-primary");
  const current = sidebar && Array.from(sidebar.querySelectorAll("li.current > a")).pop();
  if (current) {
    const top = current.getBoundingClientRect().top - sidebar.getBoundingClientRect().top;
    sidebar.scrollTop += Math.max(0, top - sidebar.clientHeight / 2);
  }
});
