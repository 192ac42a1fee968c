import{a,b,c}from"/dashboard/a/chunk-6P5XGCHG.js";import"/dashboard/a/chunk-JMTMTZP6.js";export{c as GrowVolume,a as MachineDisks,b as sizeOf};
