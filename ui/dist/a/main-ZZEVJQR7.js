import{S as r}from"/dashboard/a/chunk-S2UDNI64.js";import{O as o,b as s,z as t}from"/dashboard/a/chunk-M5I7WRJI.js";var m=document.getElementById("app");m&&(s(o(r,{}),m),t());
