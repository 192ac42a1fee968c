import{S as r}from"/dashboard/a/chunk-HAIMDPFE.js";import{A as t,P as o,c as s}from"/dashboard/a/chunk-PKUOHPPL.js";var m=document.getElementById("app");m&&(s(o(r,{}),m),t());
