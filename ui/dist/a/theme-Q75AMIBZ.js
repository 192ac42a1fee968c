var e=localStorage.getItem("sheaf.theme");(e==="light"||e==="dark")&&(document.documentElement.dataset.theme=e);
