import{a,b,c}from"/dashboard/a/chunk-RAB5BGXG.js";import"/dashboard/a/chunk-PKUOHPPL.js";export{c as GrowVolume,a as MachineDisks,b as sizeOf};
