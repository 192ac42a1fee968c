// Sets the theme before the first paint.
const chosen = localStorage.getItem("sheaf.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
