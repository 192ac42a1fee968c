import{S as r}from"/dashboard/a/chunk-DIQ7LXB2.js";import{O as o,b as s,z as t}from"/dashboard/a/chunk-JMTMTZP6.js";var m=document.getElementById("app");m&&(s(o(r,{}),m),t());
