// Keys that hold everywhere, and the first drawing.

document.addEventListener("keydown", event => {
  if (event.key !== "Escape" || opened === null) return;
  event.preventDefault();
  if (returnTo) goBack();
  else location.hash = address({ c: "" });
});
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault(); // the address holds filters
  byId("main").focus();
});
addEventListener("hashchange", route);
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
document.body.append(back);
buildList();
route();
