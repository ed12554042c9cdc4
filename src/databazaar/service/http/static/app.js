"use strict";
document.documentElement.classList.add("js");
addEventListener("DOMContentLoaded", () => {
  const button = document.querySelector(".menu-button");
  const menu = document.getElementById("menu");
  button?.addEventListener("click", () => {
    const open = menu.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
    if (open) menu.querySelector("a")?.focus();
  });
  menu?.addEventListener("keydown", (pressed) => {
    if (pressed.key !== "Escape" || !menu.classList.contains("open")) return;
    menu.classList.remove("open");
    button.setAttribute("aria-expanded", "false");
    button.focus();
  });
  // A part that renews itself waits while somebody is in it with the keyboard.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const here = document.activeElement;
    if (here !== event.detail.target && event.detail.target.contains(here)) event.detail.shouldSwap = false;
  });
  // What was said of a form that was sent is heard and reached first.
  document.querySelector("[data-first]")?.focus();
});
